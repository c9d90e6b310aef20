package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.MissingNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;

/**
 * One request, on a connection of its own. Closing it cancels the work that the worker still does for it.
 *
 * <p>Messages are JSON behind their length, four bytes. Nothing is read ahead: Arrow reads its batches from the channel
 * itself, straight into memory outside of the heap.
 */
final class Call implements Closeable {
  private static final int MESSAGE_BYTES_MAX = 1 << 30;

  private final WorkerProcess worker;
  private final SocketChannel channel;
  private JsonNode costs = MissingNode.getInstance();

  Call(WorkerProcess worker) throws IOException {
    this.worker = worker;
    this.channel = worker.connect();
  }

  SocketChannel channel() {
    return channel;
  }

  void send(ObjectNode request) throws IOException {
    byte[] text = Worker.JSON.writeValueAsBytes(request.put("token", worker.token()));
    ByteBuffer message = ByteBuffer.allocate(4 + text.length).putInt(text.length).put(text).flip();
    try {
      while (message.hasRemaining()) {
        channel.write(message);
      }
    } catch (IOException e) {
      throw worker.explain(e);
    }
  }

  /** The next message. An error of the worker is thrown as the exception that fits its kind. */
  JsonNode answer() throws IOException {
    int size = read(4).getInt();
    if (size < 0 || size > MESSAGE_BYTES_MAX) {
      throw new IOException("the lance_io worker sent a message of " + size + " bytes");
    }
    JsonNode answer = Worker.JSON.readTree(read(size).array());
    if (!answer.hasNonNull("error")) {
      return answer;
    }
    String message = answer.get("error").asText();
    switch (answer.path("kind").asText()) {
      case "missing":
        throw new MissingTableException(message);
      case "exists":
        throw new TableExistsException(message);
      case "usage":
        throw new IllegalArgumentException(message);
      case "unsupported":
        throw new UnsupportedOperationException(message);
      default:
        throw new IOException(message);
    }
  }

  /** What the request has cost so far, as the worker has said. */
  JsonNode costs() {
    return costs;
  }

  /** Whether a batch follows. An error of the worker is thrown. */
  boolean batchFollows() throws IOException {
    byte sign = read(1).get();
    while (sign == 'M') {
      costs = answer();
      sign = read(1).get();
    }
    if (sign == 'X') {
      answer();
    }
    return sign == 'B';
  }

  private ByteBuffer read(int size) throws IOException {
    ByteBuffer bytes = ByteBuffer.allocate(size);
    try {
      while (bytes.hasRemaining()) {
        if (channel.read(bytes) < 0) {
          throw new EOFException("the lance_io worker closed the connection");
        }
      }
    } catch (IOException e) {
      throw explain(e);
    }
    return bytes.flip();
  }

  /** An error that says how the worker ended, if it has. */
  IOException explain(IOException error) {
    return channel.isOpen() ? worker.explain(error) : error;
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }
}
