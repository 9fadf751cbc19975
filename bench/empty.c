/* Preloaded, it costs what preloading anything costs: the share of a start that no malloc can avoid. */
extern const char bench_empty;
const char bench_empty = 0;
