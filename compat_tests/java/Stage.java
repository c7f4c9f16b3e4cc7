import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One worker of a stage: consume, transform, produce in one transaction, until it is killed. The
 * same as compat_tests/transactions/stage_process.py.
 */
public class Stage {
    static final ObjectMapper JSON = new ObjectMapper();
    static final int BATCH = 25;

    final JsonNode options;
    final KafkaProducer<byte[], byte[]> producer;
    final KafkaConsumer<byte[], byte[]> consumer;

    Stage(JsonNode options) {
        this.options = options;
        Properties config = new Properties();
        config.put("bootstrap.servers", options.get("bootstrap").asText());
        config.put("transactional.id", options.get("transactional_id").asText());
        config.put("transaction.timeout.ms", options.get("transaction_timeout_ms").asText());
        config.put("linger.ms", "5");
        producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        config = new Properties();
        config.put("bootstrap.servers", options.get("bootstrap").asText());
        config.put("group.id", options.get("group").asText());
        config.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        config.put("isolation.level", "read_committed");
        config.put("session.timeout.ms", options.get("session_ms").asText());
        config.put("heartbeat.interval.ms", "300");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("max.poll.records", String.valueOf(BATCH));
        consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(options.get("source").asText()));
    }

    public static void main(String[] arguments) throws Exception {
        endWithInput();
        try {
            Stage stage = new Stage(JSON.readTree(arguments[0]));
            emit(event("ready"));
            stage.run();
        } catch (Exception failure) {
            emit(event("failed").put("error", failure.toString()));
        }
        Runtime.getRuntime().halt(1);
    }

    void run() {
        try {
            while (true) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(50));
                if (!polled.isEmpty()) {
                    pass(polled);
                }
            }
        } catch (RuntimeException failure) {
            producer.close(Duration.ofSeconds(5)); // which aborts, unless it is fenced
            consumer.close();
            throw failure;
        }
    }

    void pass(ConsumerRecords<byte[], byte[]> polled) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> one : polled) {
            String value = new String(one.value(), StandardCharsets.UTF_8);
            int number = Integer.parseInt(value.split(" ")[0]);
            String changed = value + " " + options.get("stage").asText();
            producer.send(new ProducerRecord<>(options.get("target").asText(),
                number % options.get("partitions").asInt(), null, changed.getBytes(StandardCharsets.UTF_8)));
            offsets.put(new TopicPartition(one.topic(), one.partition()), new OffsetAndMetadata(one.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer.commitTransaction();
        emit(event("committed").put("count", polled.count()));
    }

    static void endWithInput() {
        Thread reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (Exception failure) {
                failure.printStackTrace();
            }
            Runtime.getRuntime().halt(0); // the test is over: no goodbye
        });
        reader.setDaemon(true);
        reader.start();
    }

    static ObjectNode event(String name) {
        return JSON.createObjectNode().put("event", name);
    }

    static synchronized void emit(ObjectNode event) {
        System.out.println(event);
        System.out.flush();
    }
}
