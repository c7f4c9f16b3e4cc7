import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One consumer in a process of its own, so that a test can kill, freeze and thaw it: the same
 * events and commands as compat_tests/groups/member_process.py, a line of JSON each.
 */
public class Member implements ConsumerRebalanceListener {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    final ConcurrentLinkedQueue<JsonNode> asked = new ConcurrentLinkedQueue<>();
    final Map<TopicPartition, Long> starts = new HashMap<>();
    final KafkaConsumer<byte[], byte[]> consumer;
    final boolean commitsWhenRevoked;
    boolean fenced;
    Set<TopicPartition> owned = new HashSet<>();

    Member(JsonNode options) {
        Properties config = new Properties();
        config.put("bootstrap.servers", options.get("bootstrap").asText());
        config.put("group.id", options.get("group").asText());
        config.put("client.id", options.get("client_id").asText());
        if (options.hasNonNull("instance_id")) {
            config.put("group.instance.id", options.get("instance_id").asText());
        }
        List<String> assignors = new ArrayList<>();
        options.get("assignors").forEach(name -> assignors.add(ASSIGNORS.get(name.asText())));
        config.put("partition.assignment.strategy", String.join(",", assignors));
        config.put("session.timeout.ms", options.get("session_ms").asText());
        config.put("heartbeat.interval.ms", options.get("heartbeat_ms").asText());
        config.put("max.poll.interval.ms", options.get("max_poll_ms").asText());
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", options.get("auto_commit").asText());
        config.put("auto.commit.interval.ms", "200");
        config.put("metadata.max.age.ms", options.get("metadata_ms").asText());
        config.put("default.api.timeout.ms", "20000");
        commitsWhenRevoked = options.path("commit_when_revoked").asBoolean();
        if (options.has("start_at")) {
            options.get("start_at").forEach(one -> starts.put(pair(one), one.get(2).asLong()));
        }
        consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        if (options.has("pattern")) {
            consumer.subscribe(Pattern.compile(options.get("pattern").asText()), this);
        } else {
            List<String> topics = new ArrayList<>();
            options.get("topics").forEach(topic -> topics.add(topic.asText()));
            consumer.subscribe(topics, this);
        }
    }

    public static void main(String[] arguments) throws Exception {
        new Member(JSON.readTree(arguments[0])).run();
        System.exit(0);
    }

    void run() {
        Thread reader = new Thread(this::read);
        reader.setDaemon(true);
        reader.start();
        emit(event("ready"));
        while (true) {
            JsonNode command = asked.poll();
            if (command == null) {
                poll();
                continue;
            }
            ObjectNode done = event("done").put("id", command.get("id").asLong());
            try {
                done.set("result", JSON.valueToTree(run(command)));
            } catch (Exception failure) {
                done.put("error", failure.getClass().getSimpleName()).put("message", failure.getMessage());
            }
            emit(done);
            if (command.get("op").asText().equals("close")) {
                return;
            }
        }
    }

    void read() {
        try (var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            String line;
            while ((line = in.readLine()) != null) {
                asked.add(JSON.readTree(line));
            }
        } catch (Exception failure) {
            failure.printStackTrace();
        }
        Runtime.getRuntime().halt(0); // the test is over: no goodbye
    }

    void poll() {
        try {
            if (fenced) {
                Thread.sleep(50);
                return;
            }
            for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(50))) {
                emit(event("record").put("topic", one.topic()).put("partition", one.partition())
                    .put("offset", one.offset()).put("value", new String(one.value(), StandardCharsets.UTF_8)));
            }
        } catch (Exception failure) {
            emit(event("error").put("name", failure.getClass().getSimpleName()));
            // An application that polls again joins anew and fences the one that has its place,
            // which polls again and fences it in its turn: who stays in the end is luck.
            fenced = failure instanceof FencedInstanceIdException;
            try {
                Thread.sleep(100);
            } catch (InterruptedException stop) {
                throw new IllegalStateException(stop);
            }
        }
        Set<TopicPartition> now = new HashSet<>(consumer.assignment());
        if (!now.equals(owned)) {
            owned = now;
            emit(with(event("owns"), now));
        }
    }

    Object run(JsonNode command) throws InterruptedException {
        TopicPartition at = command.has("topic")
            ? new TopicPartition(command.get("topic").asText(), command.get("partition").asInt()) : null;
        switch (command.get("op").asText()) {
            case "commit" -> {
                if (!command.hasNonNull("offsets")) {
                    consumer.commitSync();
                } else {
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    command.get("offsets").forEach(
                        one -> offsets.put(pair(one), new OffsetAndMetadata(one.get(2).asLong())));
                    consumer.commitSync(offsets);
                }
            }
            case "committed" -> {
                OffsetAndMetadata found = consumer.committed(Set.of(at)).get(at);
                return found == null ? null : found.offset();
            }
            case "position" -> {
                return consumer.position(at);
            }
            case "seek" -> consumer.seek(at, command.get("offset").asLong());
            case "pause" -> consumer.pause(List.of(at));
            case "resume" -> consumer.resume(List.of(at));
            case "work" -> Thread.sleep(Math.round(1000 * command.get("seconds").asDouble()));
            case "close" -> consumer.close();
            default -> throw new IllegalArgumentException(command.toString());
        }
        return null;
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        emit(with(event("assigned"), partitions));
        for (TopicPartition partition : partitions) {
            if (starts.containsKey(partition)) {
                consumer.seek(partition, starts.get(partition));
            }
        }
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        emit(with(event("revoked"), partitions));
        if (commitsWhenRevoked && !partitions.isEmpty()) {
            consumer.commitSync();
        }
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        emit(with(event("lost"), partitions));
    }

    static TopicPartition pair(JsonNode one) {
        return new TopicPartition(one.get(0).asText(), one.get(1).asInt());
    }

    static ObjectNode event(String name) {
        return JSON.createObjectNode().put("event", name);
    }

    static ObjectNode with(ObjectNode event, Collection<TopicPartition> partitions) {
        ArrayNode pairs = event.putArray("partitions");
        partitions.forEach(p -> pairs.addArray().add(p.topic()).add(p.partition()));
        return event;
    }

    static synchronized void emit(ObjectNode event) {
        System.out.println(event);
        System.out.flush();
    }
}
