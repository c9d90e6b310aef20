package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.util.Base64;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.arrow.ArrowWriter;

/**
 * Rows of one task on their way to the worker, as an Arrow stream. Python says the types of its columns.
 *
 * <p>Closing it before `finish` makes the worker remove what it has written.
 */
final class RowSender implements Closeable {
  private static final int ROWS_MAX = 1 << 16; // of a batch
  private static final int ROWS_MEASURED = 256; // at most, between two looks at its bytes
  private static final long BYTES_MAX = 8 << 20;
  private static final byte[] COMPLETE = {'C'};

  private final Call call;
  private final BufferAllocator memory = new RootAllocator();
  private final VectorSchemaRoot sent;
  private final ArrowWriter columns;
  private final BigIntVector ids; // of rows that move; null for new rows
  private final ArrowStreamWriter stream;
  private int rows;
  private int measured = 1; // the number of rows at which their bytes are counted again

  RowSender(String python, String write, int partition, boolean moves) throws IOException {
    call =
        Worker.open(
            python,
            Worker.request("write_rows").put("write", write).put("partition", partition).put("moves", moves));
    TaskWatch.add(call);
    VectorSchemaRoot root = null;
    boolean isOpen = false;
    try {
      byte[] schema = Base64.getDecoder().decode(call.answer().get("arrow").asText());
      root = VectorSchemaRoot.create(schema(schema), memory);
      List<FieldVector> vectors = root.getFieldVectors();
      int last = vectors.size() - 1;
      ids = moves ? (BigIntVector) vectors.get(last) : null;
      columns = ArrowWriter.create(moves ? new VectorSchemaRoot(vectors.subList(0, last)) : root);
      sent = root;
      stream = new ArrowStreamWriter(sent, null, call.channel());
      stream.start();
      isOpen = true;
    } finally {
      if (!isOpen) {
        TaskWatch.remove(call);
        call.close();
        if (root != null) {
          root.close();
        }
        memory.close();
      }
    }
  }

  private static Schema schema(byte[] message) throws IOException {
    return MessageSerializer.deserializeSchema(
        new ReadChannel(Channels.newChannel(new ByteArrayInputStream(message))));
  }

  void send(InternalRow row) throws IOException {
    columns.write(row);
    rows++;
    if (rows == ROWS_MAX) {
      flush();
    } else if (rows == measured) {
      long bytes = bytes();
      if (bytes >= BYTES_MAX) {
        flush();
      } else { // as many rows as fit, if they are like these
        measured = rows + (int) Math.max(1, Math.min(ROWS_MEASURED, (BYTES_MAX - bytes) * rows / Math.max(1, bytes)));
      }
    }
  }

  /** A row that was in the table under a stable id. */
  void send(InternalRow row, long id) throws IOException {
    ids.setSafe(rows, id);
    send(row);
  }

  private long bytes() {
    long bytes = 0;
    for (FieldVector vector : sent.getFieldVectors()) {
      vector.setValueCount(rows);
      bytes += vector.getBufferSize();
    }
    return bytes;
  }

  private void flush() throws IOException {
    columns.finish();
    if (ids != null) {
      ids.setValueCount(rows);
    }
    sent.setRowCount(rows);
    try {
      stream.writeBatch();
    } catch (IOException e) {
      throw explained(e);
    }
    columns.reset();
    if (ids != null) {
      ids.reset();
    }
    rows = 0;
    measured = 1;
  }

  /** Ends the stream; the answer has the files. */
  JsonNode finish() throws IOException {
    if (rows > 0) {
      flush();
    }
    try {
      stream.end();
      for (ByteBuffer sign = ByteBuffer.wrap(COMPLETE); sign.hasRemaining(); ) {
        call.channel().write(sign);
      }
    } catch (IOException e) {
      throw explained(e);
    }
    return call.answer();
  }

  /** The worker's own error, if it has sent one before it closed the connection. */
  private IOException explained(IOException broken) {
    TaskContext task = TaskContext.get();
    if (task != null) {
      task.killTaskIfInterrupted(); // then the call was closed for it
    }
    try {
      call.answer();
      return call.explain(broken);
    } catch (IOException | RuntimeException e) {
      return e instanceof IOException io ? io : new IOException(e.getMessage(), e);
    }
  }

  @Override
  public void close() throws IOException {
    TaskWatch.remove(call);
    call.close(); // first, so that the worker stops
    sent.close();
    memory.close();
  }
}
