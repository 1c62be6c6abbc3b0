package counterpoise;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

import java.util.Collections;
import java.util.List;
import java.util.Map;

/** A source that has tasks.max tasks and never a record: something for Connect to assign. */
public final class IdleSource extends SourceConnector {
    private Map<String, String> config;

    @Override
    public void start(Map<String, String> properties) {
        config = properties;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return IdleTask.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int maxTasks) {
        return Collections.nCopies(maxTasks, config);
    }

    @Override
    public void stop() { }

    @Override
    public ConfigDef config() {
        return new ConfigDef();
    }

    @Override
    public String version() {
        return "1";
    }

    /** Waits. */
    public static final class IdleTask extends SourceTask {
        @Override
        public void start(Map<String, String> properties) { }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(100);
            return null;
        }

        @Override
        public void stop() { }

        @Override
        public String version() {
            return "1";
        }
    }
}
