//go:build linux

package proc

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// RSS returns the resident memory of the processes in KB, from /proc/PID/smaps_rollup. Pages that
// several of them share count for each.
func RSS(pids []int) (int64, error) {
	var sum int64
	for _, pid := range pids {
		kb, err := field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Rss:")
		if err != nil {
			return 0, err
		}
		sum += kb
	}
	return sum, nil
}

// field returns the number that follows name in a file of "name value" lines.
func field(path, name string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if rest, ok := strings.CutPrefix(sc.Text(), name); ok {
			return strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no line %s", path, name)
}

// Tree returns pid and all its descendants.
func Tree(pid int) []int {
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		// A process that has ended meanwhile has no children to add.
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pids[i]))
		for _, task := range tasks {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pids[i], task.Name()))
			for _, f := range strings.Fields(string(b)) {
				if child, err := strconv.Atoi(f); err == nil {
					pids = append(pids, child)
				}
			}
		}
	}
	return pids
}
