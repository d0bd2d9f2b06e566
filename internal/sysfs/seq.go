package sysfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ReadSeq reads a whole file of procfs into buf and returns the part filled.
// The kernel hands a seq_file out in pieces of about a page, so one read is not
// enough as it is in sysfs. A file that fills buf is refused as too large.
// Errors are [*Error].
func ReadSeq(path string, buf []byte) ([]byte, error) {
	f := File{Path: path}
	if err := f.open(); err != nil {
		return nil, err
	}
	defer f.Close()
	for n := 0; ; {
		k, err := unix.Pread(f.fd-1, buf[n:], int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		switch n += k; {
		case err != nil:
			return nil, Fail(path, err)
		case n == len(buf):
			return nil, &Error{Path: path, Reason: ReasonTooLarge, Err: fmt.Errorf("more than %d bytes", n-1)}
		case k == 0:
			return buf[:n], nil
		}
	}
}
