package counterpoise;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * One member of a group that obeys JSON lines on stdin and reports on stdout.
 *
 * <p>Arguments: "consumer" or "share", and the client's properties as a JSON object. Commands and events are
 * described in tests/kafka_client.py, which speaks the same.
 */
final class Client {
    static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(100);

    private final BlockingQueue<JsonNode> commands = new LinkedBlockingQueue<>();
    private final Membership membership;
    private boolean subscribed;

    private Client(Membership membership) {
        this.membership = membership;
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> properties = JSON.readValue(args[1], new TypeReference<>() { });
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        Client client = new Client(args[0].equals("share")
            ? new ShareMembership(properties) : new ConsumerMembership(properties));
        Thread reader = new Thread(client::read, "commands");
        reader.setDaemon(true);
        reader.start();
        report("started");
        client.run();
    }

    private void read() {
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                JsonNode command = JSON.readTree(line);
                switch (command.get("do").asText()) {
                    case "crash" -> Runtime.getRuntime().halt(137);
                    case "wakeup" -> membership.wakeup();
                    default -> commands.add(command);
                }
            }
        } catch (IOException broken) {
            // A broken stdin means what its end means: whoever asked is gone.
        }
        Runtime.getRuntime().halt(1);
    }

    private void run() throws InterruptedException {
        try {
            while (true) {
                JsonNode command = subscribed ? commands.poll() : commands.poll(POLL.toMillis(), TimeUnit.MILLISECONDS);
                if (command != null && !obey(command)) {
                    return;
                }
                if (subscribed) {
                    poll();
                }
            }
        } catch (RuntimeException refused) {
            ObjectNode event = JSON.createObjectNode().put("event", "error");
            report(event.put("error", refused.getClass().getSimpleName()).put("message", refused.getMessage()));
            Runtime.getRuntime().halt(1);
        }
    }

    private boolean obey(JsonNode command) {
        String verb = command.get("do").asText();
        switch (verb) {
            case "subscribe" -> {
                if (command.has("pattern")) {
                    membership.subscribe(command.get("pattern").asText());
                } else {
                    List<String> topics = new ArrayList<>();
                    command.get("topics").forEach(topic -> topics.add(topic.asText()));
                    membership.subscribe(topics);
                }
                subscribed = true;
            }
            case "unsubscribe" -> {
                membership.unsubscribe();
                subscribed = false;
            }
            case "leave" -> {
                membership.close();
                report("left");
                return false;
            }
            default -> throw new IllegalArgumentException(
                "unknown command " + command + "; known: subscribe, unsubscribe, wakeup, leave, crash");
        }
        report(JSON.createObjectNode().put("event", "done").put("do", verb));
        return true;
    }

    private void poll() {
        try {
            ConsumerRecords<byte[], byte[]> records = membership.poll(POLL);
            if (!records.isEmpty()) {
                ObjectNode event = partitions("records", records.partitions());
                report(event.put("count", records.count()));
            }
        } catch (WakeupException woken) {
            report("woken");
        }
    }

    static ObjectNode partitions(String name, Collection<TopicPartition> partitions) {
        ObjectNode event = JSON.createObjectNode().put("event", name);
        ArrayNode pairs = event.putArray("partitions");
        partitions.forEach(tp -> pairs.addArray().add(tp.topic()).add(tp.partition()));
        return event;
    }

    private static void report(String name) {
        report(JSON.createObjectNode().put("event", name));
    }

    static synchronized void report(ObjectNode event) {
        try {
            System.out.println(JSON.writeValueAsString(event.put("time_ms", System.currentTimeMillis())));
        } catch (JsonProcessingException impossible) {
            throw new IllegalStateException(impossible);
        }
        System.out.flush();
    }
}
