package keeper

import (
	"os"
	"slices"
)

// nameThreads names all threads of the process; those that they start get the name from them. The kernel
// cuts it to 15 bytes. proc_pid_comm(5).
func nameThreads(name string) {
	const tasks = "/proc/self/task"
	var done []string
	for range 10 { // one thread may start another meanwhile
		d, err := os.Open(tasks)
		if err != nil {
			return
		}
		threads, _ := d.Readdirnames(-1)
		d.Close()
		again := false
		for _, id := range threads {
			if !slices.Contains(done, id) {
				os.WriteFile(tasks+"/"+id+"/comm", []byte(name), 0)
				done, again = append(done, id), true
			}
		}
		if !again {
			return
		}
	}
}
