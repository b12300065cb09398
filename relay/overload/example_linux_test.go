package overload_test

import (
	"fmt"
	"log"
	"time"

	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/overload"
)

// A program that is short of memory begins less, gives back what is not in use, and ends flows whose
// readers have stopped.
func Example() {
	engine, err := relay.New(relay.Config{Loops: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()

	control := engine.Overload()
	control.Set(overload.State{NoDatagramFlows: true, HoldLess: true})
	control.Trim()
	shed := control.Shed(overload.Shedding{Quiet: time.Minute, Bytes: 64 << 20})
	fmt.Println(shed.Flows, "flows have ended")

	control.Set(overload.State{}) // there is memory again
	// Output: 0 flows have ended
}
