package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.Map;
import org.apache.spark.sql.connector.write.WriteSummary;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Requests of the driver that plan and commit changes of a table. */
final class Changes {
  private static final Logger LOG = LoggerFactory.getLogger(Changes.class);

  private Changes() {}

  /** Plans: what cannot be done is an `AnalysisException`. */
  static JsonNode plan(String python, ObjectNode request) {
    try {
      return Worker.ask(python, request);
    } catch (MissingTableException | TableExistsException e) {
      throw e;
    } catch (IllegalArgumentException | UnsupportedOperationException e) {
      throw Refusals.analysis(e.getMessage(), e);
    }
  }

  /** Changes a table, once: after a lost answer the caller must not ask again. The log has what was done. */
  static JsonNode make(String python, ObjectNode request) {
    try {
      JsonNode answer = Worker.askOnce(python, request);
      if (answer.hasNonNull("log")) {
        LOG.info(answer.get("log").asText());
      }
      return answer;
    } catch (MissingTableException | TableExistsException e) {
      throw e;
    } catch (IllegalArgumentException | UnsupportedOperationException e) {
      throw Refusals.analysis(e.getMessage(), e);
    } catch (IOException e) {
      throw new WorkerException(e.getMessage(), e);
    }
  }

  /** Commits the results of tasks, and says what that did. */
  static JsonNode commit(String python, String write, WriterCommitMessage[] messages, WriteSummary summary) {
    return make(python, finish("commit", write, messages).set("summary", Summaries.json(summary)));
  }

  /** A commit of rows that a MERGE may have inserted: it must not follow others that inserted the same keys. */
  static JsonNode commitInserted(
      String python, String write, WriterCommitMessage[] messages, WriteSummary summary) {
    ObjectNode request = finish("commit", write, messages).set("merge", RunningMerge.json());
    return make(python, request.set("summary", Summaries.json(summary)));
  }

  /** Removes the files of tasks, unless a version refers to them. */
  static void abort(String python, String write, WriterCommitMessage[] messages) {
    Worker.ask(python, finish("abort", write, messages));
  }

  private static ObjectNode finish(String operation, String write, WriterCommitMessage[] messages) {
    ObjectNode request = Worker.request(operation).put("write", write);
    ArrayNode results = request.putArray("results");
    for (WriterCommitMessage message : messages) {
      if (message != null) { // of a task that failed
        results.add(TaskResult.json(message));
      }
    }
    return request;
  }

  static void put(ObjectNode request, String field, Map<String, String> texts) {
    ObjectNode object = request.putObject(field);
    texts.forEach(object::put);
  }
}
