package counterpoise;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.ShareMemberDescription;
import org.apache.kafka.common.errors.GroupIdNotFoundException;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;

/**
 * Says what the admin client knows of share groups, of which librdkafka's knows nothing.
 *
 * <p>Argument: the bootstrap servers. Each line of stdin is a JSON array of group ids; each is answered by a line
 * of stdout, an object: group id to its state and its members with member_id, client_id, host and partitions. A
 * group that does not exist is left out.
 */
final class ShareGroups {
    private ShareGroups() { }

    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]));
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                List<String> groupIds = Client.JSON.readValue(line, new TypeReference<>() { });
                ObjectNode answer = Client.JSON.createObjectNode();
                for (var described : admin.describeShareGroups(groupIds).describedGroups().entrySet()) {
                    try {
                        answer.set(described.getKey(), describe(described.getValue().get()));
                    } catch (ExecutionException refused) {
                        if (!(refused.getCause() instanceof GroupIdNotFoundException)) {
                            throw refused;
                        }
                    }
                }
                System.out.println(Client.JSON.writeValueAsString(answer));
                System.out.flush();
            }
        }
    }

    private static ObjectNode describe(ShareGroupDescription group) {
        ObjectNode described = Client.JSON.createObjectNode().put("state", group.groupState().toString());
        ArrayNode members = described.putArray("members");
        for (ShareMemberDescription member : group.members()) {
            ArrayNode pairs = members.addObject()
                .put("member_id", member.consumerId())
                .put("client_id", member.clientId())
                .put("host", member.host())
                .putArray("partitions");
            member.assignment().topicPartitions().forEach(tp -> pairs.addArray().add(tp.topic()).add(tp.partition()));
        }
        return described;
    }
}
