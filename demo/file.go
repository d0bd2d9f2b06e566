package demo

import (
	"os"
	"strconv"
)

// counterFile is a file that shows a number which changes. It is written in
// place, because whoever reads it keeps it open.
type counterFile struct {
	file  *os.File
	value func() uint64
	shown uint64
	buf   []byte
}

// newCounterFile makes the file at path, which exists, show value.
func newCounterFile(path string, value func() uint64) (*counterFile, error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	c := &counterFile{file: f, value: value, shown: ^uint64(0)}
	c.update()
	return c, nil
}

// update writes the number if it is another than the last. Numbers only grow, so
// what was longer never remains behind. A file that cannot be written shows what
// it did: that is a disk that is full, and the demo stands still.
func (c *counterFile) update() {
	v := c.value()
	if v == c.shown {
		return
	}
	c.buf = append(strconv.AppendUint(c.buf[:0], v, 10), '\n')
	if _, err := c.file.WriteAt(c.buf, 0); err == nil {
		c.shown = v
	}
}

func (c *counterFile) close() { _ = c.file.Close() } // nothing is to be kept

// overwrite puts a word in the place of another, which is never shorter for a
// moment than it is: blanks fill what is left of it.
func overwrite(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // what matters was written
	st, err := f.Stat()
	if err != nil {
		return err
	}
	content := []byte(text)
	for int64(len(content))+1 < st.Size() {
		content = append(content, ' ')
	}
	_, err = f.WriteAt(append(content, '\n'), 0)
	return err
}
