import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Java's own client for the tests: a request a line on standard input, an answer a line on
 * standard output, both JSON. A request names a handle (one producer, consumer or admin client);
 * the requests of one handle run in order on a thread of its own, handles do not wait for each
 * other. Answers carry the request's id. Bytes travel in base64.
 */
public class Driver {
    static final ObjectMapper JSON = new ObjectMapper();
    static final PrintStream OUT = System.out;

    /** One producer, consumer or admin client and the thread it lives on. */
    abstract static class Handle {
        final ExecutorService thread = Executors.newSingleThreadExecutor(task -> {
            Thread created = new Thread(task);
            created.setDaemon(true);
            return created;
        });

        /** The answer, or null when `reply` will be called later. */
        abstract Object call(long id, String op, JsonNode request) throws Exception;
    }

    static final Map<String, Handle> HANDLES = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            JsonNode request = JSON.readTree(line);
            String name = request.get("handle").asText();
            Handle handle = HANDLES.computeIfAbsent(name, unused -> create(request));
            handle.thread.execute(() -> run(handle, name, request));
        }
        System.exit(0);
    }

    static Handle create(JsonNode request) {
        return switch (request.get("op").asText()) {
            case "producer" -> new Producer();
            case "consumer" -> new Consumer();
            case "admin" -> new Administrator();
            default -> throw new IllegalArgumentException("no such handle: " + request);
        };
    }

    static void run(Handle handle, String name, JsonNode request) {
        long id = request.get("id").asLong();
        String op = request.get("op").asText();
        try {
            Object answer = handle.call(id, op, request);
            if (answer != null) {
                reply(id, answer);
            }
        } catch (Throwable failure) {
            fail(id, failure);
        }
        if (op.equals("close")) {
            HANDLES.remove(name);
            handle.thread.shutdown();
        }
    }

    static void reply(long id, Object answer) {
        ObjectNode line = JSON.createObjectNode();
        line.put("id", id);
        line.set("result", JSON.valueToTree(answer));
        print(line);
    }

    static void fail(long id, Throwable failure) {
        while ((failure instanceof ExecutionException || failure instanceof CompletionException)
                && failure.getCause() != null) {
            failure = failure.getCause();
        }
        Errors known = Errors.forException(failure);
        ObjectNode line = JSON.createObjectNode();
        line.put("id", id);
        line.put("error", known == Errors.UNKNOWN_SERVER_ERROR ? failure.getClass().getSimpleName() : known.name());
        line.put("message", String.valueOf(failure.getMessage()));
        print(line);
    }

    static void print(ObjectNode line) {
        synchronized (OUT) {
            OUT.println(line);
            OUT.flush();
        }
    }

    static Properties config(JsonNode request) {
        Properties properties = new Properties();
        request.get("config").properties().forEach(e -> properties.put(e.getKey(), e.getValue().asText()));
        return properties;
    }

    static byte[] bytes(JsonNode node) throws Exception {
        return node == null || node.isNull() ? null : node.binaryValue();
    }

    static TopicPartition partition(JsonNode node) {
        return new TopicPartition(node.get("topic").asText(), node.get("partition").asInt());
    }

    static List<TopicPartition> partitions(JsonNode request) {
        List<TopicPartition> found = new ArrayList<>();
        request.get("partitions").forEach(node -> found.add(partition(node)));
        return found;
    }

    static ObjectNode describe(TopicPartition partition) {
        return JSON.createObjectNode().put("topic", partition.topic()).put("partition", partition.partition());
    }

    static class Producer extends Handle {
        KafkaProducer<byte[], byte[]> producer;

        @Override
        Object call(long id, String op, JsonNode request) throws Exception {
            switch (op) {
                case "producer" ->
                    producer = new KafkaProducer<>(config(request), new ByteArraySerializer(), new ByteArraySerializer());
                case "send" -> {
                    send(id, request);
                    return null;
                }
                case "flush" -> producer.flush();
                case "init_transactions" -> producer.initTransactions();
                case "begin" -> producer.beginTransaction();
                case "send_offsets" -> sendOffsets(request);
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                case "close" -> producer.close(Duration.ofSeconds(10));
                default -> throw new IllegalArgumentException(op);
            }
            return true;
        }

        void sendOffsets(JsonNode request) {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (JsonNode node : request.get("partitions")) {
                offsets.put(partition(node), new OffsetAndMetadata(node.get("offset").asLong()));
            }
            producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(request.get("group").asText()));
        }

        void send(long id, JsonNode r) throws Exception {
            ProducerRecord<byte[], byte[]> message = new ProducerRecord<>(
                r.get("topic").asText(),
                r.hasNonNull("partition") ? r.get("partition").asInt() : null,
                r.hasNonNull("timestamp") ? r.get("timestamp").asLong() : null,
                bytes(r.get("key")),
                bytes(r.get("value")));
            for (JsonNode header : r.get("headers")) {
                message.headers().add(header.get(0).asText(), bytes(header.get(1)));
            }
            producer.send(message, (metadata, failure) -> {
                if (failure != null) {
                    fail(id, failure);
                } else {
                    reply(id, List.of(metadata.partition(), metadata.offset(), metadata.timestamp()));
                }
            });
        }
    }

    static class Consumer extends Handle {
        KafkaConsumer<byte[], byte[]> consumer;

        @Override
        Object call(long id, String op, JsonNode request) throws Exception {
            switch (op) {
                case "consumer" -> consumer =
                    new KafkaConsumer<>(config(request), new ByteArrayDeserializer(), new ByteArrayDeserializer());
                case "assign" -> {
                    consumer.assign(partitions(request));
                    for (JsonNode node : request.get("partitions")) {
                        consumer.seek(partition(node), node.get("offset").asLong());
                    }
                }
                case "seek" -> consumer.seek(partition(request), request.get("offset").asLong());
                case "seek_to_beginning" -> consumer.seekToBeginning(List.of(partition(request)));
                case "seek_to_end" -> consumer.seekToEnd(List.of(partition(request)));
                case "position" -> {
                    return consumer.position(partition(request));
                }
                case "poll" -> {
                    return poll(Duration.ofMillis(request.get("timeout_ms").asLong()));
                }
                case "beginning_offsets" -> {
                    return offsets(consumer.beginningOffsets(partitions(request)));
                }
                case "end_offsets" -> {
                    return offsets(consumer.endOffsets(partitions(request)));
                }
                case "offsets_for_times" -> {
                    return offsetsForTimes(request);
                }
                case "close" -> consumer.close();
                default -> throw new IllegalArgumentException(op);
            }
            return true;
        }

        ArrayNode poll(Duration timeout) {
            ArrayNode found = JSON.createArrayNode();
            for (ConsumerRecord<byte[], byte[]> message : consumer.poll(timeout)) {
                ObjectNode node = found.addObject();
                node.put("topic", message.topic()).put("partition", message.partition());
                node.put("offset", message.offset()).put("timestamp", message.timestamp());
                node.put("timestamp_type", message.timestampType().name);
                node.put("key", message.key()).put("value", message.value());
                ArrayNode headers = node.putArray("headers");
                for (Header header : message.headers()) {
                    headers.addArray().add(header.key()).add(header.value());
                }
            }
            return found;
        }

        ArrayNode offsets(Map<TopicPartition, Long> offsets) {
            ArrayNode found = JSON.createArrayNode();
            offsets.forEach((partition, offset) -> found.add(describe(partition).put("offset", offset)));
            return found;
        }

        ArrayNode offsetsForTimes(JsonNode request) {
            Map<TopicPartition, Long> asked = new HashMap<>();
            for (JsonNode node : request.get("partitions")) {
                asked.put(partition(node), node.get("timestamp").asLong());
            }
            ArrayNode found = JSON.createArrayNode();
            consumer.offsetsForTimes(asked).forEach((partition, at) -> {
                ObjectNode node = describe(partition);
                node.put("offset", at == null ? -1 : at.offset());
                node.put("timestamp", at == null ? -1 : at.timestamp());
                found.add(node);
            });
            return found;
        }
    }

    static class Administrator extends Handle {
        Admin admin;

        @Override
        Object call(long id, String op, JsonNode request) throws Exception {
            switch (op) {
                case "admin" -> admin = Admin.create(config(request));
                case "create_topic" -> createTopic(request);
                case "delete_topic" -> admin.deleteTopics(List.of(request.get("topic").asText())).all().get();
                case "list_topics" -> {
                    return admin.listTopics().names().get();
                }
                case "describe_topic" -> {
                    return describeTopic(request.get("topic").asText());
                }
                case "create_partitions" -> admin.createPartitions(Map.of(
                    request.get("topic").asText(), NewPartitions.increaseTo(request.get("total").asInt()))).all().get();
                case "describe_configs" -> {
                    return describeConfigs(resource(request));
                }
                case "incremental_alter_configs" -> alterConfigs(request);
                case "delete_records" -> {
                    return deleteRecords(request);
                }
                case "log_dirs" -> {
                    return logDirs();
                }
                case "describe_cluster" -> {
                    return describeCluster();
                }
                case "list_offsets" -> {
                    return listOffsets(request);
                }
                case "close" -> admin.close(Duration.ofSeconds(5));
                default -> throw new IllegalArgumentException(op);
            }
            return true;
        }

        void createTopic(JsonNode request) throws Exception {
            NewTopic topic = new NewTopic(request.get("topic").asText(), request.get("partitions").asInt(), (short) 1);
            Map<String, String> configs = new HashMap<>();
            request.get("config").properties().forEach(e -> configs.put(e.getKey(), e.getValue().asText()));
            admin.createTopics(List.of(topic.configs(configs))).all().get();
        }

        Map<String, Object> describeTopic(String topic) throws Exception {
            TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            Map<Integer, Integer> leaders = new TreeMap<>();
            found.partitions().forEach(p -> leaders.put(p.partition(), p.leader().id()));
            return Map.of("topic_id", found.topicId().toString(), "leaders", leaders);
        }

        ConfigResource resource(JsonNode request) {
            return new ConfigResource(
                ConfigResource.Type.valueOf(request.get("kind").asText()), request.get("name").asText());
        }

        Map<String, String> describeConfigs(ConfigResource resource) throws Exception {
            Map<String, String> found = new TreeMap<>();
            admin.describeConfigs(List.of(resource)).all().get().get(resource)
                .entries().forEach(entry -> found.put(entry.name(), entry.value()));
            return found;
        }

        void alterConfigs(JsonNode request) throws Exception {
            Collection<AlterConfigOp> changes = new ArrayList<>();
            request.get("config").properties().forEach(e -> changes.add(new AlterConfigOp(
                new ConfigEntry(e.getKey(), e.getValue().isNull() ? null : e.getValue().asText()),
                e.getValue().isNull() ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET)));
            admin.incrementalAlterConfigs(Map.of(resource(request), changes)).all().get();
        }

        ArrayNode deleteRecords(JsonNode request) throws Exception {
            Map<TopicPartition, RecordsToDelete> asked = new HashMap<>();
            for (JsonNode node : request.get("partitions")) {
                asked.put(partition(node), RecordsToDelete.beforeOffset(node.get("offset").asLong()));
            }
            ArrayNode found = JSON.createArrayNode();
            for (var one : admin.deleteRecords(asked).lowWatermarks().entrySet()) {
                found.add(describe(one.getKey()).put("offset", one.getValue().get().lowWatermark()));
            }
            return found;
        }

        ArrayNode logDirs() throws Exception {
            ArrayNode found = JSON.createArrayNode();
            List<Integer> nodes = admin.describeCluster().nodes().get().stream().map(n -> n.id()).toList();
            for (var broker : admin.describeLogDirs(nodes).allDescriptions().get().values()) {
                broker.forEach((path, dir) -> dir.replicaInfos().forEach((partition, replica) ->
                    found.add(describe(partition).put("size", replica.size()).put("path", path)
                        .put("total", dir.totalBytes().orElse(-1)).put("usable", dir.usableBytes().orElse(-1)))));
            }
            return found;
        }

        Map<String, Object> describeCluster() throws Exception {
            DescribeClusterResult found = admin.describeCluster();
            List<String> nodes = found.nodes().get().stream().map(n -> n.host() + ":" + n.port()).toList();
            return Map.of("cluster_id", found.clusterId().get(), "controller", found.controller().get().id(), "nodes", nodes);
        }

        ArrayNode listOffsets(JsonNode request) throws Exception {
            Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
            for (JsonNode node : request.get("partitions")) {
                asked.put(partition(node), switch (node.get("at").asText()) {
                    case "latest" -> OffsetSpec.latest();
                    case "earliest" -> OffsetSpec.earliest();
                    case "max_timestamp" -> OffsetSpec.maxTimestamp();
                    case "earliest_local" -> OffsetSpec.earliestLocal();
                    case "latest_tiered" -> OffsetSpec.latestTiered();
                    default -> OffsetSpec.forTimestamp(node.get("at").asLong());
                });
            }
            ArrayNode found = JSON.createArrayNode();
            admin.listOffsets(asked).all().get().forEach((partition, at) ->
                found.add(describe(partition).put("offset", at.offset()).put("timestamp", at.timestamp())));
            return found;
        }
    }
}
