package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteSummary;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** A write whose results one commit makes a version, or an abort removes. It holds the answer of the commit. */
abstract class CommittedWrite implements Write, BatchWrite {
  private final String python;
  private final String write;
  private final boolean mayBeMerged;
  private JsonNode committed; // the answer; null before the commit

  /**
   * A write that is planned.
   *
   * @param python which Python commits
   * @param write the write, as Python serialized it
   * @param mayBeMerged whether its new rows may be those of a MERGE
   */
  CommittedWrite(String python, String write, boolean mayBeMerged) {
    this.python = python;
    this.write = write;
    this.mayBeMerged = mayBeMerged;
  }

  final String python() {
    return python;
  }

  @Override
  public void commit(WriterCommitMessage[] messages) {
    commit(messages, null);
  }

  @Override
  public void commit(WriterCommitMessage[] messages, WriteSummary summary) {
    committed =
        mayBeMerged
            ? Changes.commitInserted(python, write, messages, summary)
            : Changes.commit(python, write, messages, summary);
  }

  @Override
  public void abort(WriterCommitMessage[] messages) {
    Changes.abort(python, write, messages);
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return WriteMetrics.supported();
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return WriteMetrics.of(committed);
  }
}
