package lance_io.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * A sample of whole fragments: each has a number from 0 to 1, which the seed decides.
 *
 * @param lower the least number of a fragment that is read
 * @param upper the number from which on fragments are not read
 */
record Sample(double lower, double upper, long seed) {
  ObjectNode json() {
    return Worker.JSON.createObjectNode().put("lower", lower).put("upper", upper).put("seed", Long.toString(seed));
  }
}
