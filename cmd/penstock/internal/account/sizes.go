package account

import (
	"strconv"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// NumSizes is the number of classes of flows by the bytes that went down to the client: see spec.SizeBounds.
const NumSizes = len(spec.SizeBounds) + 1

// sizeOf returns the class of a flow.
func sizeOf(bytes int64) int {
	i := 0
	for i < len(spec.SizeBounds) && bytes > spec.SizeBounds[i] {
		i++
	}
	return i
}

// sizeName returns the name of a class in the layout of a series.
func sizeName(i int) string {
	if i < len(spec.SizeBounds) {
		return "down.size.le." + strconv.FormatInt(spec.SizeBounds[i], 10)
	}
	return "down.size.le.inf"
}
