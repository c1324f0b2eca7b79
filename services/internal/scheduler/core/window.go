package core

// window bounds claimed, unfinished rows and their bytes. Rows can be reserved before it is known which they are.
type window struct {
	rows, reserved, maxRows int
	soft                    int // of those reserved, for scans: whose answer comes first takes them
	bytes, maxBytes         int64
	// next is a row that found no room for its bytes. It is the next to be claimed, so that smaller rows that keep
	// coming never pass it over for ever, and so that nobody asks the store for it again and again.
	next *claim
}

// room is the number of rows that could still be asked for.
func (w *window) room() int { return max(0, w.free()-w.soft) }

// free is the number of rows that the answer to a scan could claim.
func (w *window) free() int {
	if w.bytes >= w.maxBytes || w.next != nil {
		return 0
	}
	return max(0, w.maxRows-w.rows-(w.reserved-w.soft))
}

// fits says whether a row can be claimed; one that is larger than the window fits when nothing else is claimed.
func (w *window) fits(size int64) bool {
	return w.rows < w.maxRows && (w.bytes+size <= w.maxBytes || w.rows == 0)
}

// ready says whether the row that is next can be claimed.
func (w *window) ready() bool { return w.next != nil && w.fits(int64(w.next.Size)) }

func (w *window) add(size int64)    { w.rows, w.bytes = w.rows+1, w.bytes+size }
func (w *window) remove(size int64) { w.rows, w.bytes = w.rows-1, w.bytes-size }
