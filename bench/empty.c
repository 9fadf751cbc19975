/* Preloading this object costs what preloading any object costs: the part of a start that no malloc can avoid. */
extern const char bench_empty;
const char bench_empty = 0;
