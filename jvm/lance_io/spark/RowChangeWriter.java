package lance_io.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.roaringbitmap.RoaringBitmap;

/** The changes of one task: addresses of rows that leave, as bitmaps; rows that replace them; rows that are new. */
final class RowChangeWriter implements DeltaWriter<InternalRow> {
  private final Factory job;
  private final int partition;
  private final Map<Integer, RoaringBitmap> deleted = new TreeMap<>(); // offsets by fragment
  private RowSender moved; // rows that keep their stable ids
  private RowSender inserted;
  private long updates;

  /**
   * What all tasks of a statement share.
   *
   * @param python which Python writes
   * @param write the write, as Python serialized it
   * @param moves whether updated rows keep their ids
   */
  record Factory(String python, String write, boolean moves) implements DeltaWriterFactory {
    @Override
    public DeltaWriter<InternalRow> createWriter(int partition, long task) {
      return new RowChangeWriter(this, partition);
    }
  }

  private RowChangeWriter(Factory job, int partition) {
    this.job = job;
    this.partition = partition;
  }

  /** A MERGE that only deletes may match a row several times: Spark does not count its matches then. */
  @Override
  public void delete(InternalRow metadata, InternalRow id) throws IOException {
    if (!mark(id) && updates > 0) {
      throw changedTwice(id);
    }
  }

  /** Notes that a row leaves; whether it is the first time. */
  private boolean mark(InternalRow id) {
    long address = id.getLong(0);
    return deleted.computeIfAbsent((int) (address >>> 32), fragment -> new RoaringBitmap()).checkedAdd((int) address);
  }

  private static IOException changedTwice(InternalRow id) {
    return new IOException("the row at " + id.getLong(0) + " is changed twice");
  }

  @Override
  public void update(InternalRow metadata, InternalRow id, InternalRow row) throws IOException {
    if (!mark(id)) {
      throw changedTwice(id);
    }
    updates++;
    if (moved == null) {
      moved = new RowSender(job.python(), job.write(), partition, job.moves());
    }
    if (job.moves()) {
      moved.send(row, metadata.getLong(0));
    } else {
      moved.send(row);
    }
  }

  @Override
  public void insert(InternalRow row) throws IOException {
    if (inserted == null) {
      inserted = new RowSender(job.python(), job.write(), partition, false);
    }
    inserted.send(row);
  }

  @Override
  public WriterCommitMessage commit() throws IOException {
    ObjectNode result = Worker.JSON.createObjectNode().put("partition", partition).put("updated", updates);
    ObjectNode bitmaps = result.putObject("deleted");
    for (Map.Entry<Integer, RoaringBitmap> entry : deleted.entrySet()) {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      entry.getValue().runOptimize();
      entry.getValue().serialize(new DataOutputStream(bytes));
      bitmaps.put(Integer.toUnsignedString(entry.getKey()), Base64.getEncoder().encodeToString(bytes.toByteArray()));
    }
    if (moved != null) {
      result.set("moved", moved.finish().get("files"));
    }
    if (inserted != null) {
      result.set("inserted", inserted.finish().get("files"));
    }
    return TaskResult.of(result);
  }

  @Override
  public void abort() {
    // Closing removes the files.
  }

  @Override
  public void close() throws IOException {
    try {
      if (moved != null) {
        moved.close();
      }
    } finally {
      if (inserted != null) {
        inserted.close();
      }
    }
  }
}
