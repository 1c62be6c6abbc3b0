package counterpoise;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocol;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocolCollection;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.group.classic.ClassicGroup;
import org.apache.kafka.coordinator.group.classic.ClassicGroupMember;
import org.apache.kafka.coordinator.group.classic.ClassicGroupState;

import java.util.Optional;

/** The coordinator's own classic group: who leads, and which assignor its members choose. */
final class GroupCases {
    private static final int TIMEOUT_MS = 60_000;

    private GroupCases() { }

    /** "story" of joins, leaves and replaced static members; answers leader and protocol after each. */
    static JsonNode play(JsonNode given) {
        ClassicGroup group = new ClassicGroup(
            new LogContext(), "group", ClassicGroupState.EMPTY, Time.SYSTEM);
        ArrayNode after = Oracle.JSON.createArrayNode();
        for (JsonNode event : given.get("story")) {
            String member = event.get("member").asText();
            switch (event.get("does").asText()) {
                case "join" -> group.add(member(member, event));
                case "leave" -> group.remove(member);
                default -> group.replaceStaticMember(
                    event.get("static").asText(), event.get("replaces").asText(), member);
            }
            ObjectNode now = after.addObject();
            now.put("leader", group.leaderOrNull());
            now.put("protocol", group.numMembers() == 0 ? null : group.selectProtocol());
        }
        return after;
    }

    private static ClassicGroupMember member(String id, JsonNode event) {
        JoinGroupRequestProtocolCollection protocols = new JoinGroupRequestProtocolCollection();
        event.get("protocols").forEach(name -> protocols.add(
            new JoinGroupRequestProtocol().setName(name.asText()).setMetadata(new byte[0])));
        Optional<String> instance = Optional.ofNullable(event.get("static")).map(JsonNode::asText);
        return new ClassicGroupMember(
            id, instance, "client", "host", TIMEOUT_MS, TIMEOUT_MS, "consumer", protocols);
    }
}
