package lance_io.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** New rows of one task. A task without rows asks nothing of the worker. */
final class TableWriter implements DataWriter<InternalRow> {
  private final Factory job;
  private final int partition;
  private RowSender rows;

  /**
   * What all tasks of a write share.
   *
   * @param python which Python writes
   * @param write the write, as Python serialized it
   */
  record Factory(String python, String write) implements DataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task) {
      return new TableWriter(this, partition);
    }
  }

  private TableWriter(Factory job, int partition) {
    this.job = job;
    this.partition = partition;
  }

  @Override
  public void write(InternalRow row) throws IOException {
    if (rows == null) {
      rows = new RowSender(job.python(), job.write(), partition, false);
    }
    rows.send(row);
  }

  @Override
  public WriterCommitMessage commit() throws IOException {
    ObjectNode result = Worker.JSON.createObjectNode().put("partition", partition);
    if (rows != null) {
      result.set("inserted", rows.finish().get("files"));
    }
    return TaskResult.of(result);
  }

  @Override
  public void abort() {
    // Closing removes the files.
  }

  @Override
  public void close() throws IOException {
    if (rows != null) {
      rows.close();
    }
  }
}
