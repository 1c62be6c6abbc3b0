package counterpoise;

import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.ShareConsumer;

import java.time.Duration;
import java.util.Collection;
import java.util.Map;

/** A share consumer; it has no callbacks and no patterns, so its records are all it reports. */
final class ShareMembership implements Membership {
    private final ShareConsumer<byte[], byte[]> consumer;

    ShareMembership(Map<String, Object> properties) {
        consumer = new KafkaShareConsumer<>(properties);
    }

    @Override
    public void subscribe(Collection<String> topics) {
        consumer.subscribe(topics);
    }

    @Override
    public void subscribe(String pattern) {
        throw new IllegalArgumentException("a share consumer subscribes to topics by name, not to " + pattern);
    }

    @Override
    public void unsubscribe() {
        consumer.unsubscribe();
    }

    @Override
    public ConsumerRecords<byte[], byte[]> poll(Duration timeout) {
        return consumer.poll(timeout);
    }

    @Override
    public void wakeup() {
        consumer.wakeup();
    }

    @Override
    public void close() {
        consumer.close();
    }
}
