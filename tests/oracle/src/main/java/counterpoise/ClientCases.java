package counterpoise;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractStickyAssignor.MemberData;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/** The four client-side assignors, called as ConsumerCoordinator calls them. */
final class ClientCases {
    private final Map<String, AbstractPartitionAssignor> assignorBySession = new HashMap<>();

    JsonNode assign(String kind, JsonNode given) throws Exception {
        AbstractPartitionAssignor assignor = given.has("session")
            ? assignorBySession.computeIfAbsent(kind + "/" + given.get("session").asText(), __ -> create(kind))
            : create(kind);
        Map<String, Subscription> subscriptions = subscriptions(kind, given.get("members"));
        Map<String, Assignment> assigned = assignor
            .assign(cluster(given.get("topics")), new GroupSubscription(subscriptions))
            .groupAssignment();
        ObjectNode result = Oracle.JSON.createObjectNode();
        for (JsonNode member : given.get("members")) {
            ArrayNode owned = result.putArray(member.get("id").asText());
            Assignment own = assigned.get(member.get("id").asText());
            if (own != null) {
                own.partitions().forEach(tp -> owned.addArray().add(tp.topic()).add(tp.partition()));
            }
        }
        return result;
    }

    /** The same computation with its inputs already built, for timing. */
    Runnable prepared(JsonNode given) throws Exception {
        String kind = given.get("assignor").asText();
        Cluster cluster = cluster(given.get("topics"));
        GroupSubscription group = new GroupSubscription(subscriptions(kind, given.get("members")));
        AbstractPartitionAssignor assignor = create(kind);
        return () -> assignor.assign(cluster, group);
    }

    private static AbstractPartitionAssignor create(String kind) {
        return switch (kind) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }

    private static Cluster cluster(JsonNode topics) {
        Map<String, Node> nodeByRack = new LinkedHashMap<>();
        List<PartitionInfo> infos = new ArrayList<>();
        topics.fields().forEachRemaining(entry -> {
            String topic = entry.getKey();
            JsonNode partitions = entry.getValue();
            if (partitions.isInt()) {
                for (int p = 0; p < partitions.asInt(); p++) {
                    infos.add(new PartitionInfo(topic, p, Node.noNode(), new Node[0], new Node[0]));
                }
            } else if (partitions.isArray()) {
                for (int p = 0; p < partitions.size(); p++) {
                    infos.add(info(topic, p, partitions.get(p), nodeByRack));
                }
            } else {
                for (JsonNode pair : partitions.get("ids")) {
                    infos.add(info(topic, pair.get(0).asInt(), pair.get(1), nodeByRack));
                }
            }
        });
        return new Cluster("oracle", nodeByRack.values(), infos, Set.of(), Set.of());
    }

    private static PartitionInfo info(String topic, int partition, JsonNode racks, Map<String, Node> nodeByRack) {
        Node[] replicas = new Node[racks == null ? 0 : racks.size()];
        for (int i = 0; i < replicas.length; i++) {
            JsonNode rack = racks.get(i);
            replicas[i] = nodeByRack.computeIfAbsent(rack.isNull() ? null : rack.asText(),
                name -> new Node(nodeByRack.size(), "host", 9092, name));
        }
        return new PartitionInfo(topic, partition, Node.noNode(), replicas, replicas);
    }

    private static Map<String, Subscription> subscriptions(String kind, JsonNode members) throws Exception {
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (JsonNode member : members) {
            List<String> topics = new ArrayList<>();
            member.get("topics").forEach(topic -> topics.add(topic.asText()));
            List<TopicPartition> owned = new ArrayList<>();
            if (member.hasNonNull("owned")) {
                member.get("owned").forEach(tp -> owned.add(new TopicPartition(tp.get(0).asText(), tp.get(1).asInt())));
            }
            boolean eagerSticky = kind.equals("sticky");
            boolean ownedTravels = !eagerSticky || member.path("owned_in_subscription").asBoolean(false);
            int generation = member.hasNonNull("generation") ? member.get("generation").asInt() : -1;
            int ownField = member.hasNonNull("sub_generation") ? member.get("sub_generation").asInt() : generation;
            Subscription subscription = new Subscription(
                topics,
                userData(kind, member, owned, generation),
                ownedTravels ? owned : List.of(),
                ownField,
                Optional.ofNullable(member.hasNonNull("rack") ? member.get("rack").asText() : null));
            if (member.hasNonNull("instance_id")) {
                subscription.setGroupInstanceId(Optional.of(member.get("instance_id").asText()));
            }
            subscriptions.put(member.get("id").asText(), subscription);
        }
        return subscriptions;
    }

    private static ByteBuffer userData(String kind, JsonNode member, List<TopicPartition> owned, int generation)
        throws Exception {
        String layout = member.hasNonNull("user_data") ? member.get("user_data").asText() : "default";
        if (layout.startsWith("b64:")) {
            return ByteBuffer.wrap(Base64.getDecoder().decode(layout.substring(4)));
        }
        switch (layout) {
            case "none":
                return null;
            case "empty":
                return ByteBuffer.allocate(0);
            case "v0":
                return layoutV0(owned);
            case "v1":
                return layoutV1(owned, generation);
            default:
                break;
        }
        if (kind.equals("sticky")) {
            boolean remembers = member.hasNonNull("owned") || member.hasNonNull("generation");
            return remembers ? layoutV1(owned, generation) : null;
        }
        if (kind.equals("cooperative-sticky")) {
            return ByteBuffer.allocate(4).putInt(0, generation);
        }
        return null;
    }

    private static ByteBuffer layoutV1(List<TopicPartition> owned, int generation) throws Exception {
        Method serialize = StickyAssignor.class.getDeclaredMethod("serializeTopicPartitionAssignment", MemberData.class);
        serialize.setAccessible(true);
        return (ByteBuffer) serialize.invoke(null, new MemberData(owned, Optional.of(generation)));
    }

    /** Layout v1 without its last field, the generation. */
    private static ByteBuffer layoutV0(List<TopicPartition> owned) throws Exception {
        ByteBuffer whole = layoutV1(owned, 0);
        byte[] head = new byte[whole.remaining() - Integer.BYTES];
        whole.get(head);
        return ByteBuffer.wrap(head);
    }
}
