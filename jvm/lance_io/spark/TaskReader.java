package lance_io.spark;

import java.io.IOException;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The batches of one task, one at a time in memory. */
final class TaskReader implements PartitionReader<ColumnarBatch> {
  private final Call call;
  private final BufferAllocator memory = new RootAllocator();
  private final ArrowStreamReader stream;
  private ColumnarBatch batch;
  private boolean failed;
  private long waitedNanos;

  TaskReader(TaskPart part) throws IOException {
    call = Worker.open(part.python(), Worker.request("read").put("job", part.job()).put("part", part.part()));
    stream = new ArrowStreamReader(call.channel(), memory);
    TaskWatch.add(call);
    try {
      call.answer();
    } catch (IOException | RuntimeException e) {
      close();
      throw e;
    }
  }

  @Override
  public boolean next() throws IOException {
    long started = System.nanoTime();
    try {
      if (!call.batchFollows() || !stream.loadNextBatch()) {
        return false;
      }
      waitedNanos += System.nanoTime() - started;
    } catch (IOException e) {
      failed = true;
      TaskContext task = TaskContext.get();
      if (task != null) {
        task.killTaskIfInterrupted(); // then the call was closed for it
      }
      throw call.explain(e);
    }
    if (batch == null) {
      List<FieldVector> vectors = stream.getVectorSchemaRoot().getFieldVectors();
      ColumnVector[] columns = new ColumnVector[vectors.size()];
      for (int i = 0; i < columns.length; i++) {
        columns[i] = new ArrowColumnVector(vectors.get(i));
      }
      batch = new ColumnarBatch(columns);
    }
    batch.setNumRows(stream.getVectorSchemaRoot().getRowCount());
    return true;
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return TaskMetrics.of(call.costs(), waitedNanos);
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public void close() throws IOException {
    TaskWatch.remove(call);
    call.close(); // first, so that the worker stops
    stream.close(false);
    try {
      memory.close();
    } catch (IllegalStateException e) {
      if (!failed) {
        throw e; // a batch was kept beyond its time
      }
      // A batch that broke off may leave a buffer behind; the error of the read says why, and must not be replaced.
    }
  }
}
