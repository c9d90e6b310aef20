package lance_io.spark;

/**
 * Which version a query reads.
 *
 * @param version a number, tag or branch; null for none
 * @param micros a time in microseconds; null for none
 */
record Moment(String version, Long micros) {
  static final Moment NEWEST = new Moment(null, null);
}
