package org.apache.kafka.connect.runtime.distributed;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.message.JoinGroupResponseData.JoinGroupResponseMember;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.runtime.distributed.IncrementalCooperativeAssignor.ClusterAssignment;
import org.apache.kafka.connect.runtime.distributed.WorkerCoordinator.ConnectorsAndTasks;
import org.apache.kafka.connect.storage.ClusterConfigState;
import org.apache.kafka.connect.util.ConnectUtils;
import org.apache.kafka.connect.util.ConnectorTaskId;

import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;

/**
 * Connect's two assignors.
 *
 * In Kafka's package because the incremental assignor's computation is visible only there. What
 * workers report and receive passes through Connect's own wire format, as between real workers.
 */
public final class ConnectCases {
    private static final String LEADER_URL = "http://leader/";

    private ConnectCases() { }

    /** A clock that stands where a round says. */
    static final class RoundTime implements Time {
        long now;

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1_000_000L;
        }

        @Override
        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void waitObject(Object obj, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    public static JsonNode eager(ObjectMapper json, JsonNode given) throws Exception {
        WorkerCoordinator coordinator = bareCoordinator();
        coordinator.configSnapshot(config(given, 0));
        List<JoinGroupResponseMember> members = new ArrayList<>();
        for (JsonNode worker : given.get("workers")) {
            members.add(new JoinGroupResponseMember()
                .setMemberId(worker.asText())
                .setMetadata(ConnectProtocol.serializeMetadata(
                    new ConnectProtocol.WorkerState(LEADER_URL, 0)).array()));
        }
        // The eager protocol's metadata lacks an allocation, which the assignor reads all the same.
        members.forEach(member -> member.setMetadata(IncrementalCooperativeConnectProtocol.serializeMetadata(
            new ExtendedWorkerState(LEADER_URL, 0, null), false).array()));
        Map<String, ByteBuffer> assigned = new EagerAssignor(new LogContext()).performAssignment(
            members.get(0).memberId(), ConnectProtocolCompatibility.EAGER, members, coordinator);
        ObjectNode result = json.createObjectNode();
        for (JsonNode worker : given.get("workers")) {
            ConnectProtocol.Assignment assignment = ConnectProtocol.deserializeAssignment(assigned.get(worker.asText()));
            ObjectNode own = result.putObject(worker.asText());
            put(own, "connectors", assignment.connectors());
            putTasks(own, "tasks", assignment.tasks());
        }
        return result;
    }

    public static JsonNode incremental(ObjectMapper json, JsonNode given) throws Exception {
        RoundTime time = new RoundTime();
        IncrementalCooperativeAssignor assignor =
            new IncrementalCooperativeAssignor(new LogContext(), time, given.get("max_delay").asInt());
        Map<String, ExtendedAssignment> running = new HashMap<>();
        ObjectNode result = json.createObjectNode();
        ArrayNode rounds = result.putArray("rounds");
        int completedGeneration = 0;
        for (JsonNode round : given.get("rounds")) {
            time.now = round.get("time").asLong();
            int generation = round.hasNonNull("generation") ? round.get("generation").asInt() : completedGeneration + 1;
            int lastCompleted = round.hasNonNull("last_completed_generation")
                ? round.get("last_completed_generation").asInt() : completedGeneration;
            ObjectNode answer = rounds.addObject();
            ObjectNode input = answer.putObject("input");

            Map<String, ExtendedWorkerState> states = new HashMap<>();
            Set<String> failed = new HashSet<>();
            Set<String> present = new HashSet<>();
            for (JsonNode worker : round.get("workers")) {
                String workerId = worker.isTextual() ? worker.asText() : worker.get("id").asText();
                present.add(workerId);
                if (worker.isObject()) {
                    if (worker.path("lost").asBoolean(false)) {
                        running.remove(workerId);
                    } else if (worker.has("connectors") || worker.has("tasks")) {
                        running.put(workerId, reported(worker));
                    }
                    if (worker.path("sync_failed").asBoolean(false)) {
                        failed.add(workerId);
                    }
                }
                ByteBuffer metadata = IncrementalCooperativeConnectProtocol.serializeMetadata(
                    new ExtendedWorkerState(LEADER_URL, 0, running.get(workerId)), true);
                ExtendedWorkerState state = IncrementalCooperativeConnectProtocol.deserializeMetadata(metadata);
                states.put(workerId, state);
                ObjectNode own = input.putObject(workerId);
                put(own, "connectors", state.assignment().connectors());
                putTasks(own, "tasks", state.assignment().tasks());
            }
            running.keySet().retainAll(present);

            Map<String, ConnectorsAndTasks> reports = ConnectUtils.transformValues(states,
                state -> new ConnectorsAndTasks.Builder()
                    .with(state.assignment().connectors(), state.assignment().tasks())
                    .build());
            ClusterAssignment cluster = assignor.performTaskAssignment(config(round, 0), lastCompleted, generation, reports);

            for (String workerId : input.properties().stream().map(Map.Entry::getKey).toList()) {
                ObjectNode own = answer.putObject(workerId);
                put(own, "assigned_connectors", cluster.newlyAssignedConnectors(workerId));
                putTasks(own, "assigned_tasks", cluster.newlyAssignedTasks(workerId));
                put(own, "revoked_connectors", cluster.newlyRevokedConnectors(workerId));
                putTasks(own, "revoked_tasks", cluster.newlyRevokedTasks(workerId));
                put(own, "all_connectors", cluster.allAssignedConnectors().getOrDefault(workerId, List.of()));
                putTasks(own, "all_tasks", cluster.allAssignedTasks().getOrDefault(workerId, List.of()));
                if (!round.path("sync_failed").asBoolean(false) && !failed.contains(workerId)) {
                    running.put(workerId, received(cluster, workerId, assignor.delay, running.get(workerId)));
                }
            }
            answer.put("delay", assignor.delay);
            answer.put("scheduled", assignor.scheduledRebalance);
            answer.put("generation", generation);
            if (!round.path("sync_failed").asBoolean(false)) {
                completedGeneration = generation;
            }
        }
        return result;
    }

    private static ExtendedAssignment reported(JsonNode worker) {
        List<String> connectors = new ArrayList<>();
        List<ConnectorTaskId> tasks = new ArrayList<>();
        worker.path("connectors").forEach(c -> connectors.add(c.asText()));
        worker.path("tasks").forEach(t -> tasks.add(new ConnectorTaskId(t.get(0).asText(), t.get(1).asInt())));
        return new ExtendedAssignment(IncrementalCooperativeConnectProtocol.CONNECT_PROTOCOL_V2,
            ConnectProtocol.Assignment.NO_ERROR, "leader", LEADER_URL, 0, connectors, tasks,
            new ArrayList<>(), new ArrayList<>(), 0);
    }

    /** What a worker runs after a sync: Connect's wire, then what WorkerCoordinator.onJoinComplete does. */
    private static ExtendedAssignment received(
        ClusterAssignment cluster, String workerId, int delay, ExtendedAssignment before) {
        ExtendedAssignment sent = new ExtendedAssignment(IncrementalCooperativeConnectProtocol.CONNECT_PROTOCOL_V2,
            ConnectProtocol.Assignment.NO_ERROR, "leader", LEADER_URL, 0,
            cluster.newlyAssignedConnectors(workerId), cluster.newlyAssignedTasks(workerId),
            cluster.newlyRevokedConnectors(workerId), cluster.newlyRevokedTasks(workerId), delay);
        ExtendedAssignment now = IncrementalCooperativeConnectProtocol.deserializeAssignment(
            IncrementalCooperativeConnectProtocol.serializeAssignment(sent, true));
        if (before != null) {
            before.connectors().removeAll(now.revokedConnectors());
            before.tasks().removeAll(now.revokedTasks());
            now.connectors().addAll(before.connectors());
            now.tasks().addAll(before.tasks());
        }
        return now;
    }

    static ClusterConfigState config(JsonNode given, long offset) {
        Map<String, Integer> taskCounts = new LinkedHashMap<>();
        Map<String, Map<String, String>> configs = new LinkedHashMap<>();
        given.get("connectors").fields().forEachRemaining(entry -> {
            configs.put(entry.getKey(), Map.of());
            if (!entry.getValue().isNull()) {
                taskCounts.put(entry.getKey(), entry.getValue().asInt());
            }
        });
        Set<String> inconsistent = new HashSet<>();
        given.path("inconsistent").forEach(name -> inconsistent.add(name.asText()));
        return new ClusterConfigState(offset, null, taskCounts, configs, Map.of(), Map.of(), Map.of(), Map.of(),
            Map.of(), Set.of(), inconsistent);
    }

    /** A coordinator of which only the configuration snapshot exists: all that the eager assignor asks. */
    private static WorkerCoordinator bareCoordinator() throws Exception {
        Class<?> unsafeClass = Class.forName("sun.misc.Unsafe");
        Field instance = unsafeClass.getDeclaredField("theUnsafe");
        instance.setAccessible(true);
        return (WorkerCoordinator) unsafeClass.getMethod("allocateInstance", Class.class)
            .invoke(instance.get(null), WorkerCoordinator.class);
    }

    static void put(ObjectNode node, String name, Collection<String> values) {
        ArrayNode array = node.putArray(name);
        values.forEach(array::add);
    }

    static void putTasks(ObjectNode node, String name, Collection<ConnectorTaskId> tasks) {
        ArrayNode array = node.putArray(name);
        tasks.forEach(task -> array.addArray().add(task.connector()).add(task.task()));
    }
}
