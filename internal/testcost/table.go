package testcost

// size is what is counted of a flow.
const size = "bytes of an idle flow"

// table is what everything costs today.
var table = []row{
	{"stream flow", size, 424, 0, "all that a flow needs lies in its slot; 64 of them fill a size class of the runtime"},
	{"datagram flow", size, 512, 0, "as above, with the names of both ends, and what each direction sends as a run"},
	{"64 slots", size, 272, 0, "the generations of 64 slots, and whose they are"},
}
