package org.apache.kafka.connect.runtime.distributed;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.clients.GroupRebalanceConfig;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocol;
import org.apache.kafka.common.message.JoinGroupResponseData.JoinGroupResponseMember;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.storage.ClusterConfigState;
import org.apache.kafka.connect.storage.ConfigBackingStore;
import org.apache.kafka.connect.util.ConnectorTaskId;

import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * A cluster of Connect's own WorkerCoordinators, one a worker.
 *
 * What a broker does between them is read from the case: it chooses protocol and leader, counts
 * generations and carries the bytes. A worker that is absent from a round has ended; under the same
 * id comes a new one.
 */
public final class ConnectWorkers {
    private ConnectWorkers() { }

    /** What the herder of a worker is told, and the configuration that it has read. */
    private static final class Herder implements WorkerRebalanceListener {
        private ClusterConfigState config;
        private ExtendedAssignment running = ExtendedAssignment.empty();
        private final List<String> stoppedConnectors = new ArrayList<>();
        private final List<ConnectorTaskId> stoppedTasks = new ArrayList<>();

        @Override
        public void onAssigned(ExtendedAssignment assignment, int generation) {
            running = assignment;
        }

        @Override
        public void onRevoked(String leader, Collection<String> connectors, Collection<ConnectorTaskId> tasks) {
            stoppedConnectors.addAll(connectors);
            stoppedTasks.addAll(tasks);
        }

        @Override
        public void onPollTimeoutExpiry() {
            throw new UnsupportedOperationException();
        }

        private ConfigBackingStore store() {
            return (ConfigBackingStore) Proxy.newProxyInstance(
                ConfigBackingStore.class.getClassLoader(), new Class<?>[] {ConfigBackingStore.class},
                (proxy, method, arguments) -> {
                    if (method.getName().equals("snapshot")) {
                        return config;
                    }
                    throw new UnsupportedOperationException(method.getName());
                });
        }
    }

    /** Without a network client: it sends nothing by itself. */
    private static final class Worker extends WorkerCoordinator {
        private final Herder herder;
        private int joining;

        private Worker(String id, Herder herder, Time time, ConnectProtocolCompatibility mode, int maxDelay) {
            super(new GroupRebalanceConfig(10_000, 60_000, 3_000, "connect", Optional.empty(), null, 100, 1_000),
                new LogContext(), null, new Metrics(), "connect", time, "http://" + id + ":8083/",
                herder.store(), herder, mode, maxDelay);
            this.herder = herder;
        }

        @Override
        public int generationId() {
            return joining;
        }
    }

    public static JsonNode play(ObjectMapper json, JsonNode given) {
        ConnectCases.RoundTime time = new ConnectCases.RoundTime();
        Map<String, Worker> cluster = new LinkedHashMap<>();
        ObjectNode result = json.createObjectNode();
        var rounds = result.putArray("rounds");
        int generation = 0;
        for (JsonNode round : given.get("rounds")) {
            time.now = round.get("time").asLong();
            generation++;
            Map<String, JsonNode> present = new LinkedHashMap<>();
            round.get("workers").forEach(worker -> present.put(worker.get("id").asText(), worker));
            cluster.keySet().retainAll(present.keySet());
            rounds.add(rebalance(json, given, round, present, cluster, generation, time));
        }
        return result;
    }

    private static ObjectNode rebalance(
        ObjectMapper json, JsonNode given, JsonNode round, Map<String, JsonNode> present,
        Map<String, Worker> cluster, int generation, Time time) {
        String protocol = round.get("protocol").asText();
        ObjectNode answer = json.createObjectNode();
        List<JoinGroupResponseMember> members = new ArrayList<>();
        present.forEach((id, node) -> {
            Worker worker = cluster.computeIfAbsent(id, absent -> new Worker(id, new Herder(), time,
                ConnectProtocolCompatibility.compatibility(node.get("mode").asText()),
                given.get("max_delay").asInt()));
            worker.joining = generation;
            worker.herder.config = ConnectCases.config(round, node.path("offset").asLong(0));
            worker.herder.stoppedConnectors.clear();
            worker.herder.stoppedTasks.clear();
            worker.onJoinPrepare(null, generation - 1, id);
            ObjectNode joined = answer.withObject("/joined").putObject(id);
            for (JoinGroupRequestProtocol offered : worker.metadata()) {
                joined.put(offered.name(), Base64.getEncoder().encodeToString(offered.metadata()));
                if (offered.name().equals(protocol)) {
                    members.add(new JoinGroupResponseMember().setMemberId(id).setMetadata(offered.metadata()));
                }
            }
        });
        if (members.size() != present.size()) {
            throw new IllegalArgumentException("not every worker offers " + protocol);
        }
        String leader = round.get("leader").asText();
        Map<String, ByteBuffer> assigned = cluster.get(leader).onLeaderElected(leader, protocol, members, false);
        cluster.forEach((id, worker) -> {
            byte[] sent = Utils.toArray(assigned.get(id));
            answer.withObject("/given").put(id, Base64.getEncoder().encodeToString(sent));
            worker.onJoinComplete(generation, id, protocol, ByteBuffer.wrap(sent));
            put(answer, "runs", id, worker.herder.running.connectors(), worker.herder.running.tasks());
            put(answer, "stopped", id, worker.herder.stoppedConnectors, worker.herder.stoppedTasks);
        });
        return answer;
    }

    private static void put(
        ObjectNode answer, String name, String id, Collection<String> connectors, Collection<ConnectorTaskId> tasks) {
        ObjectNode own = answer.withObject("/" + name).putObject(id);
        ConnectCases.put(own, "connectors", connectors);
        ConnectCases.putTasks(own, "tasks", tasks);
    }
}
