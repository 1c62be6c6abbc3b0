package counterpoise;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.coordinator.group.modern.SubscribedTopicDescriberImpl;
import org.apache.kafka.coordinator.group.modern.TopicIds;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Supplier;

/** KIP-848's range and uniform, with the group described to them as the coordinator does. */
final class ServerCases {
    private ServerCases() { }

    private record Topic(String name, Uuid id, int partitionCount) implements CoordinatorMetadataImage.TopicMetadata {
        @Override
        public List<String> partitionRacks(int partitionId) {
            return List.of();
        }
    }

    /** The topics of one case; everything the assignors may ask of a metadata image. */
    private record Image(Map<String, Topic> topicByName, Map<Uuid, Topic> topicById) implements CoordinatorMetadataImage {
        @Override
        public Set<Uuid> topicIds() {
            return topicById.keySet();
        }

        @Override
        public Set<String> topicNames() {
            return topicByName.keySet();
        }

        @Override
        public Optional<TopicMetadata> topicMetadata(String topicName) {
            return Optional.ofNullable(topicByName.get(topicName));
        }

        @Override
        public Optional<TopicMetadata> topicMetadata(Uuid topicId) {
            return Optional.ofNullable(topicById.get(topicId));
        }

        @Override
        public CoordinatorMetadataDelta emptyDelta() {
            return CoordinatorMetadataDelta.EMPTY;
        }

        @Override
        public long version() {
            return 1;
        }

        @Override
        public boolean isEmpty() {
            return topicByName.isEmpty();
        }
    }

    /** The computation with its inputs already built; it fills in the topics' ids. */
    static Supplier<Map<String, MemberAssignment>> prepared(String kind, JsonNode given, Map<String, Uuid> idByName) {
        if (given.hasNonNull("topic_ids")) {
            given.get("topic_ids").fields().forEachRemaining(e -> idByName.put(e.getKey(), uuid(e.getValue().asText())));
        }
        Image image = new Image(new HashMap<>(), new HashMap<>());
        given.get("topics").fields().forEachRemaining(entry -> {
            JsonNode value = entry.getValue();
            int count = value.isInt() ? value.asInt() : value.isArray() ? value.size() : value.get("ids").size();
            Uuid id = idByName.computeIfAbsent(entry.getKey(), ServerCases::md5);
            Topic topic = new Topic(entry.getKey(), id, count);
            image.topicByName().put(topic.name(), topic);
            image.topicById().put(id, topic);
        });

        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        Set<Set<String>> differentSubscriptions = new HashSet<>();
        for (JsonNode member : given.get("members")) {
            String memberId = member.get("id").asText();
            Set<String> names = new LinkedHashSet<>();
            member.get("topics").forEach(topic -> names.add(topic.asText()));
            differentSubscriptions.add(names);
            Map<Uuid, Set<Integer>> owned = new HashMap<>();
            if (member.hasNonNull("owned")) {
                for (JsonNode tp : member.get("owned")) {
                    Uuid id = idByName.computeIfAbsent(tp.get(0).asText(), ServerCases::md5);
                    // Pairs are grouped as Java code does. A broker reads whole topics from its records
                    // and so puts a new one behind the others of its bucket, not before: "owned_read".
                    if (given.path("owned_read").asBoolean(false)) {
                        owned.putIfAbsent(id, new HashSet<>());
                        owned.get(id).add(tp.get(1).asInt());
                    } else {
                        owned.computeIfAbsent(id, __ -> new HashSet<>()).add(tp.get(1).asInt());
                    }
                    inverted.computeIfAbsent(id, __ -> new HashMap<>()).put(tp.get(1).asInt(), memberId);
                }
            }
            members.put(memberId, new MemberSubscriptionAndAssignmentImpl(
                Optional.ofNullable(member.hasNonNull("rack") ? member.get("rack").asText() : null),
                Optional.ofNullable(member.hasNonNull("instance_id") ? member.get("instance_id").asText() : null),
                new TopicIds(names, image),
                new Assignment(owned)));
        }
        SubscriptionType type = given.hasNonNull("subscription_type")
            ? SubscriptionType.valueOf(given.get("subscription_type").asText().toUpperCase(java.util.Locale.ROOT))
            : differentSubscriptions.size() > 1 ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS;

        ConsumerGroupPartitionAssignor assignor = kind.equals("server-range") ? new RangeAssignor() : new UniformAssignor();
        GroupSpecImpl group = new GroupSpecImpl(members, type, inverted);
        return () -> assignor.assign(group, new SubscribedTopicDescriberImpl(image)).members();
    }

    static JsonNode assign(String kind, JsonNode given) {
        Map<String, Uuid> idByName = new HashMap<>();
        Map<String, MemberAssignment> assigned = prepared(kind, given, idByName).get();
        Map<Uuid, String> nameById = new HashMap<>();
        idByName.forEach((name, id) -> nameById.put(id, name));
        ObjectNode result = Oracle.JSON.createObjectNode();
        for (JsonNode member : given.get("members")) {
            ArrayNode list = result.putArray(member.get("id").asText());
            MemberAssignment own = assigned.get(member.get("id").asText());
            if (own == null) {
                continue;
            }
            Map<String, Set<Integer>> sorted = new TreeMap<>();
            own.partitions().forEach((id, partitions) -> sorted.put(nameById.get(id), new TreeSet<>(partitions)));
            sorted.forEach((name, partitions) -> partitions.forEach(p -> list.addArray().add(name).add(p)));
        }
        return result;
    }

    static Uuid uuid(String base64) {
        String urlSafe = base64.replace('+', '-').replace('/', '_').replace("=", "");
        ByteBuffer bytes = ByteBuffer.wrap(Base64.getUrlDecoder().decode(urlSafe));
        return new Uuid(bytes.getLong(), bytes.getLong());
    }

    private static Uuid md5(String name) {
        try {
            ByteBuffer bytes = ByteBuffer.wrap(
                MessageDigest.getInstance("MD5").digest(name.getBytes(StandardCharsets.UTF_8)));
            return new Uuid(bytes.getLong(), bytes.getLong());
        } catch (java.security.NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
