package splice

// leased returns how many pipes hold bytes of running copies.
func leased() int64 { return shared().Stats().Leased }

// takePipes leases every pipe that there is, until the call of what it returns.
func takePipes() (giveBack func()) {
	pipes := shared()
	giveBack = func() {}
	for p := pipes.Get(); p != nil; p = pipes.Get() {
		next := giveBack
		giveBack = func() { pipes.Put(p); next() }
	}
	return giveBack
}
