package counterpoise;

import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.connect.runtime.distributed.ConnectCases;
import org.apache.kafka.connect.runtime.distributed.ConnectWorkers;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;

/**
 * Answers each JSON line on standard input with what Kafka's own classes say.
 *
 * One JVM, one answer a line, flushed at once, so that a caller may hold a dialogue. An exception of
 * Kafka's is an answer too: {"error": its simple class name, "message": its words}. A case with
 * "timing": n is computed n times and answers "cpu_ns" and "wall_ns", the thread's processor time and
 * the wall's of each. {"again": true} stands for the whole case before, which may be large.
 */
public final class Oracle {
    static final ObjectMapper JSON = JsonMapper.builder()
        .enable(JsonWriteFeature.ESCAPE_NON_ASCII)
        .build();

    private final ClientCases clients = new ClientCases();
    private JsonNode last;

    private Oracle() { }

    public static void main(String[] args) throws Exception {
        Oracle oracle = new Oracle();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        PrintStream answers = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, "UTF-8");
        // Kafka's logging must not fall between the answers.
        System.setOut(System.err);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.isBlank()) {
                continue;
            }
            answers.println(JSON.writeValueAsString(oracle.answer(line)));
            answers.flush();
        }
    }

    private ObjectNode answer(String line) {
        ObjectNode answer = JSON.createObjectNode();
        boolean named = false;
        try {
            JsonNode asked = JSON.readTree(line);
            JsonNode given = asked.path("again").asBoolean(false) ? last : asked;
            last = given;
            if (given.has("id")) {
                answer.set("id", given.get("id"));
                named = true;
            }
            if (asked.has("timing")) {
                return timed(answer, given, asked.get("timing").asInt());
            }
            JsonNode result = compute(given);
            if (!named) {
                return (ObjectNode) result;
            }
            answer.set("result", result);
        } catch (Throwable thrown) {
            Throwable cause = thrown instanceof InvocationTargetException && thrown.getCause() != null
                ? thrown.getCause() : thrown;
            answer.put("error", cause.getClass().getSimpleName());
            answer.put("message", String.valueOf(cause.getMessage()));
        }
        return answer;
    }

    private ObjectNode timed(ObjectNode answer, JsonNode given, int times) throws Exception {
        var threads = ManagementFactory.getThreadMXBean();
        var durations = answer.putArray("cpu_ns");
        var walls = answer.putArray("wall_ns");
        for (int i = 0; i < times; i++) {
            Runnable work = prepared(given);
            long began = System.nanoTime();
            long before = threads.getCurrentThreadCpuTime();
            work.run();
            durations.add(threads.getCurrentThreadCpuTime() - before);
            walls.add(System.nanoTime() - began);
        }
        return answer;
    }

    private Runnable prepared(JsonNode given) throws Exception {
        String kind = given.get("assignor").asText();
        return kind.startsWith("server-") ? ServerCases.prepared(kind, given, new HashMap<>())::get : clients.prepared(given);
    }

    private JsonNode compute(JsonNode given) throws Exception {
        String kind = given.get("assignor").asText();
        return switch (kind) {
            case "range", "roundrobin", "sticky", "cooperative-sticky" -> clients.assign(kind, given);
            case "server-range", "server-uniform" -> ServerCases.assign(kind, given);
            case "connect-eager" -> ConnectCases.eager(JSON, given);
            case "connect-incremental" -> ConnectCases.incremental(JSON, given);
            case "classic-group" -> GroupCases.play(given);
            case "connect-workers" -> ConnectWorkers.play(JSON, given);
            default -> CollectionCases.answer(kind, given);
        };
    }
}
