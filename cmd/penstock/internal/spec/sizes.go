package spec

// SizeBounds are the upper bounds of classes of flows by the bytes that went down to the client, which counters and a relay's
// reports have. The first class is of flows whose clients got nothing; a last one has the rest.
var SizeBounds = [...]int64{0, 1<<7 - 1, 1<<10 - 1, 1<<13 - 1, 1<<16 - 1, 1<<19 - 1, 1<<22 - 1}
