package counterpoise;

import org.apache.kafka.clients.consumer.ConsumerRecords;

import java.time.Duration;
import java.util.Collection;

/** What consumers and share consumers have in common; Kafka itself gives them no common type. */
interface Membership {
    void subscribe(Collection<String> topics);

    void subscribe(String pattern);

    void unsubscribe();

    ConsumerRecords<byte[], byte[]> poll(Duration timeout);

    void wakeup();

    void close();
}
