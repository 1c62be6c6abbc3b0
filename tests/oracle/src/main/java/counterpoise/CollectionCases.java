package counterpoise;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.ExponentialBackoff;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.util.ConnectorTaskId;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.UsableBroker;

import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;

/** What the assignors rest on: Java's orders and hashes, and Kafka's placers, hashes and backoff. */
final class CollectionCases {
    private CollectionCases() { }

    static JsonNode answer(String kind, JsonNode given) throws Exception {
        return switch (kind) {
            case "java-hash-set" -> hashSetOrder(given);
            case "java-hash-code" -> hashCodes(given);
            case "java-sort" -> sorted(given);
            case "murmur2" -> murmur2(given);
            case "backoff" -> backoff(given);
            case "striped-placer" -> striped(given);
            case "circle-placer" -> circle(given);
            default -> throw new IllegalArgumentException("unknown assignor '" + kind + "'");
        };
    }

    private static Object item(JsonNode item) {
        if (item.isTextual()) {
            return item.asText();
        }
        if (item.isInt()) {
            return item.asInt();
        }
        return switch (item.get(0).asText()) {
            case "topic-partition" -> new TopicPartition(item.get(1).asText(), item.get(2).asInt());
            case "task" -> new ConnectorTaskId(item.get(1).asText(), item.get(2).asInt());
            default -> ServerCases.uuid(item.get(1).asText());
        };
    }

    /** items added one by one to a HashSet ("capacity" if given), "removed" removed; answers positions. */
    private static JsonNode hashSetOrder(JsonNode given) {
        List<Object> items = new ArrayList<>();
        given.get("items").forEach(i -> items.add(item(i)));
        Set<Object> set;
        if (given.path("copied").asBoolean(false)) {
            set = new HashSet<>(items);
        } else {
            set = given.has("capacity") ? new HashSet<>(given.get("capacity").asInt()) : new HashSet<>();
            set.addAll(items);
        }
        if (given.has("removed")) {
            given.get("removed").forEach(i -> set.remove(item(i)));
        }
        ObjectNode result = Oracle.JSON.createObjectNode();
        ArrayNode order = result.putArray("order");
        set.forEach(o -> order.add(items.indexOf(o)));
        return result;
    }

    private static JsonNode hashCodes(JsonNode given) {
        ObjectNode result = Oracle.JSON.createObjectNode();
        ArrayNode hashes = result.putArray("hashes");
        given.get("items").forEach(i -> hashes.add(item(i).hashCode()));
        return result;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static JsonNode sorted(JsonNode given) {
        List<Comparable> items = new ArrayList<>();
        given.get("items").forEach(i -> items.add((Comparable) item(i)));
        List<Comparable> original = new ArrayList<>(items);
        Collections.sort(items);
        ObjectNode result = Oracle.JSON.createObjectNode();
        ArrayNode order = result.putArray("order");
        items.forEach(o -> order.add(original.indexOf(o)));
        return result;
    }

    private static JsonNode murmur2(JsonNode given) {
        ObjectNode result = Oracle.JSON.createObjectNode();
        ArrayNode hashes = result.putArray("hashes");
        given.get("keys").forEach(key -> hashes.add(Utils.murmur2(Base64.getDecoder().decode(key.asText()))));
        return result;
    }

    private static JsonNode backoff(JsonNode given) {
        int max = given.get("max_delay").asInt();
        ExponentialBackoff backoff = new ExponentialBackoff(max == 0 ? 0 : 1, 40, max, 0);
        ObjectNode result = Oracle.JSON.createObjectNode();
        ArrayNode delays = result.putArray("delays");
        for (int attempts = 1; attempts <= given.get("attempts").asInt(); attempts++) {
            delays.add(backoff.backoff(attempts));
        }
        return result;
    }

    /** AdminUtils is not in 4.3.1's jars, so it is not there to compile against either. */
    @SuppressWarnings("unchecked")
    private static JsonNode circle(JsonNode given) throws Exception {
        Class<?> brokerMetadata = Class.forName("org.apache.kafka.admin.BrokerMetadata");
        List<Object> brokers = new ArrayList<>();
        for (JsonNode b : given.get("brokers")) {
            brokers.add(brokerMetadata.getConstructor(int.class, Optional.class).newInstance(
                b.get("id").asInt(), Optional.ofNullable(b.hasNonNull("rack") ? b.get("rack").asText() : null)));
        }
        Map<Integer, List<Integer>> placed = (Map<Integer, List<Integer>>) Class
            .forName("org.apache.kafka.admin.AdminUtils")
            .getMethod("assignReplicasToBrokers", Collection.class, int.class, int.class, int.class, int.class)
            .invoke(null, brokers, given.get("partitions").asInt(), given.get("replication_factor").asInt(),
                given.get("start").asInt(), given.get("start_partition").asInt());
        ObjectNode result = Oracle.JSON.createObjectNode();
        new TreeMap<>(placed).forEach((partition, replicas) -> {
            ArrayNode list = result.putArray(String.valueOf(partition));
            replicas.forEach(list::add);
        });
        return result;
    }

    /** Draws the upper bits of "multiplier" x + "increment" modulo 2^64, x being the seed first. */
    private static final class LinearDice extends Random {
        private final long multiplier;
        private final long increment;
        private long last;

        private LinearDice(long seed, JsonNode given) {
            last = seed;
            multiplier = given.get("multiplier").asLong();
            increment = given.get("increment").asLong();
        }

        @Override
        protected int next(int bits) {
            last = multiplier * last + increment;
            return (int) (last >>> (Long.SIZE - bits));
        }
    }

    /** Partitions placed by a controller with "seed", or with "dice" of another kind started there. */
    private static JsonNode striped(JsonNode given) {
        List<UsableBroker> brokers = new ArrayList<>();
        given.get("brokers").forEach(b -> brokers.add(new UsableBroker(
            b.get("id").asInt(),
            Optional.ofNullable(b.hasNonNull("rack") ? b.get("rack").asText() : null),
            b.path("fenced").asBoolean(false))));
        ClusterDescriber cluster = new ClusterDescriber() {
            @Override
            public Iterator<UsableBroker> usableBrokers() {
                return brokers.iterator();
            }

            @Override
            public org.apache.kafka.common.Uuid defaultDir(int brokerId) {
                return org.apache.kafka.common.Uuid.ZERO_UUID;
            }
        };
        long seed = given.get("seed").asLong();
        StripedReplicaPlacer placer = new StripedReplicaPlacer(
            given.has("dice") ? new LinearDice(seed, given.get("dice")) : new Random(seed));
        ObjectNode result = Oracle.JSON.createObjectNode();
        ArrayNode partitions = result.putArray("partitions");
        placer.place(new PlacementSpec(
            given.path("start_partition").asInt(0),
            given.get("partitions").asInt(),
            (short) given.get("replication_factor").asInt()), cluster)
            .assignments()
            .forEach(assignment -> {
                ArrayNode replicas = partitions.addArray();
                assignment.replicas().forEach(replicas::add);
            });
        return result;
    }
}
