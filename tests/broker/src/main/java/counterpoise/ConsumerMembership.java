package counterpoise;

import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;

import java.time.Duration;
import java.util.Collection;
import java.util.Map;
import java.util.regex.Pattern;

/** A consumer of either protocol, whose callbacks are reported as they come. */
final class ConsumerMembership implements Membership, ConsumerRebalanceListener {
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final boolean brokerMatchesPatterns;

    ConsumerMembership(Map<String, Object> properties) {
        consumer = new KafkaConsumer<>(properties);
        brokerMatchesPatterns = "consumer".equals(properties.get("group.protocol"));
    }

    @Override
    public void subscribe(Collection<String> topics) {
        consumer.subscribe(topics, this);
    }

    @Override
    public void subscribe(String pattern) {
        if (brokerMatchesPatterns) {
            consumer.subscribe(new SubscriptionPattern(pattern), this);
        } else {
            consumer.subscribe(Pattern.compile(pattern), this);
        }
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

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        report("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        report("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        report("lost", partitions);
    }

    private void report(String name, Collection<TopicPartition> partitions) {
        ConsumerGroupMetadata group = consumer.groupMetadata();
        Client.report(Client.partitions(name, partitions)
            .put("generation_id", group.generationId())
            .put("member_id", group.memberId()));
    }
}
