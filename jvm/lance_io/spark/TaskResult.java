package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;

/**
 * The result of a task, as JSON in a message of Spark's own class.
 *
 * <p>Results are deserialized by the root class loader, which knows no class of a JAR that was added to a running
 * session.
 */
final class TaskResult {
  private TaskResult() {}

  static WriterCommitMessage of(ObjectNode result) throws IOException {
    return new PythonWriterCommitMessage(Worker.JSON.writeValueAsBytes(result));
  }

  static JsonNode json(WriterCommitMessage message) {
    try {
      return Worker.JSON.readTree(((PythonWriterCommitMessage) message).pickledMessage());
    } catch (IOException e) {
      throw new WorkerException("the result of a task is damaged: " + e.getMessage(), e);
    }
  }
}
