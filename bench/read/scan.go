package read

import (
	"bufio"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// line is a line of text, without additions of launchers and terminals.
type line struct {
	number int
	text   string
	cut    bool // the file ends within the line
}

// scan passes the lines and JSON documents of a file to the parsers.
func scan(r io.Reader, s *sink, parsers func() []parser) {
	limited := &io.LimitedReader{R: r, N: maxFile + 1}
	in := bufio.NewReaderSize(decode(limited), maxLine)
	d := newCollector(s, parsers)
	number := 0
	for {
		raw, err := in.ReadSlice('\n')
		if len(raw) > 0 {
			number++
			d.raw(string(raw), number, err != nil)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			s.fail(number, "line is longer than %d bytes: the rest of it is not read", maxLine)
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = in.ReadSlice('\n')
			}
		}
		switch {
		case limited.N == 0:
			s.fail(number, "file is larger than %d bytes: the rest is not read", maxFile)
		case err == nil:
			continue
		case !errors.Is(err, io.EOF):
			s.fail(number, "read failed: %v", err)
		case number == 0:
			s.fail(0, "file is empty")
		}
		d.end()
		return
	}
}

// collector separates JSON documents from text.
type collector struct {
	sink     *sink
	make     func() []parser
	parsers  []parser
	inner    *collector // collector for the texts inside documents
	doc      []byte     // content of the open document
	start    int        // first line of the open document; 0 if none is open
	open     []byte     // open braces and brackets
	last     byte       // last non-blank character
	inString bool
	escaped  bool
	bare     bool // keys without quotes: perftest until 23.10
	indented bool // the document has an indented line
}

func newCollector(s *sink, parsers func() []parser) *collector {
	return &collector{sink: s, make: parsers, parsers: parsers()}
}

// raw reads a line as it is in the file. A carriage return separates texts that a terminal shows in one place.
func (c *collector) raw(text string, number int, cut bool) {
	text = strings.TrimRight(text, "\r\n")
	for {
		part, rest, more := strings.Cut(text, "\r")
		c.line(line{number, trim(part), cut && !more})
		if !more {
			return
		}
		text = rest
	}
}

func (c *collector) line(l line) {
	switch begin := strings.TrimLeft(l.text, " \t"); {
	case c.start == 0 || begin == "" && !c.inString:
	case c.inString, !c.continues(begin, len(begin) < len(l.text)): // a string has no line break
		if c.last == '{' && len(c.open) == 1 {
			c.start = 0 // not a document: a brace with another meaning
		} else {
			c.close() // the document was cut
		}
	default:
		c.indented = c.indented || len(begin) < len(l.text)
	}
	text := l.text
	for {
		if c.start == 0 {
			text = strings.TrimLeft(text, " \t[],")
			if !opensDocument.MatchString(text) {
				break
			}
			c.start, c.doc, c.open, c.last = l.number, nil, nil, 0
			c.inString, c.escaped, c.indented, c.bare = false, false, false, bareDocument.MatchString(text)
		}
		rest, ended := c.read(text)
		if !ended {
			return
		}
		text = rest
	}
	if text != "" && len(text) == len(strings.TrimLeft(l.text, " \t[],")) { // the line has no document
		for _, p := range c.parsers {
			p.text(l)
		}
	}
}

var (
	// barewords matches barewords that can begin a line of JSON, or of perftest's version of it.
	barewords = regexp.MustCompile(`^(?:true|false|null|sl:|-?nan|-?inf|-?\d[\d.eE+-]*\s*[,}\]]*\s*$)`)
	bareKey   = regexp.MustCompile(`^\w[\w .*]*:`)

	opensDocument = regexp.MustCompile(`^\{[ \t]*(?:$|["}]|test_info[ \t]*:)`)
	bareDocument  = regexp.MustCompile(`^\{[ \t]*test_info`)
)

// continues reports whether a line can continue the open document.
func (c *collector) continues(begin string, indented bool) bool {
	if first := c.last == '{' && len(c.open) == 1; first {
		c.bare = c.bare || strings.HasPrefix(begin, "test_info")
		return begin[0] == '"' || begin[0] == '}' || c.bare
	}
	if begin[0] == '{' { // another document, unless a value is allowed here
		inList := len(c.open) > 0 && c.open[len(c.open)-1] == '['
		value := c.last == ':' || inList && (c.last == '[' || c.last == ',')
		return value && (indented || !c.indented)
	}
	return strings.IndexByte(`"}[],:`, begin[0]) >= 0 || barewords.MatchString(begin) ||
		c.bare && bareKey.MatchString(begin)
}

// read adds text to the document, up to its end.
func (c *collector) read(text string) (rest string, ended bool) {
	for i := range len(text) {
		b := text[i]
		switch {
		case c.escaped:
			c.escaped = false
		case c.inString && b == '\\':
			c.escaped = true
		case b == '"':
			c.inString = !c.inString
		case c.inString:
		case b == '{' || b == '[':
			c.open = append(c.open, b)
		case (b == '}' || b == ']') && len(c.open) > 0:
			c.open = c.open[:len(c.open)-1]
		}
		if b != ' ' && b != '\t' {
			c.last = b
		}
		if len(c.open) == 0 {
			c.doc = append(c.doc, text[:i+1]...)
			c.close()
			return text[i+1:], true
		}
	}
	c.doc = append(append(c.doc, text...), '\n')
	if len(c.doc) > maxDocument {
		c.sink.fail(c.start, "JSON document is larger than %d bytes", maxDocument)
		c.close()
		return "", true
	}
	return "", false
}

// close passes the document to the reader of its inner texts, or to the parser that knows it. An unknown document is an
// error only if nothing else in the file is known.
func (c *collector) close() {
	d := newDocument(c.start, c.doc)
	c.doc, c.start, c.open, c.inString, c.escaped = nil, 0, nil, false, false
	if apart, known := d.carried(c.carried); known {
		if apart && d.err != nil {
			c.sink.fail(d.errorLine(), "the notebook is cut: %v", d.err)
		}
		return
	}
	for _, p := range c.parsers {
		if p.document(d) {
			return
		}
	}
	if d.err != nil {
		c.sink.fail(d.errorLine(), "invalid JSON, or it was cut: %v", d.err)
	}
}

// carried reads a text inside a document. A text of several lines, such as a notebook's cell, is complete.
func (c *collector) carried(text string, number int) {
	if c.inner == nil {
		c.inner = newCollector(c.sink, c.make)
	}
	for part := range strings.Lines(text) {
		c.inner.raw(part, number, false)
	}
	if strings.Count(text, "\n") > 1 {
		c.inner.end()
		c.inner = nil
	}
}

func (c *collector) end() {
	if c.start > 0 {
		c.close()
	}
	if c.inner != nil {
		c.inner.end()
		c.inner = nil
	}
	for _, p := range c.parsers {
		p.end()
	}
}

// noDocuments is embedded by parsers of tools without JSON.
type noDocuments struct{}

func (noDocuments) document(*document) bool { return false }

// has reports whether a text contains one of some words. It is a fast test that spares most lines of a large log the
// regular expressions.
func has(text string, words ...string) bool {
	for _, word := range words {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// numeric reports whether a field of a table is a figure.
func numeric(field string) bool {
	_, err := parseFloat(field)
	return err == nil || errors.Is(err, strconv.ErrRange) || field == "N/A"
}

// parseFloat is [strconv.ParseFloat] with -nan, which the C library prints for 0 ÷ 0.
func parseFloat(text string) (float64, error) {
	return strconv.ParseFloat(strings.Replace(strings.ToLower(text), "-nan", "nan", 1), 64)
}

// columns are the columns of a table, by the names in its header.
type columns struct {
	names  []string
	before int // number of fields that a log puts before each line, such as the time
}

// header returns the columns whose names match.
func header(text string, names *regexp.Regexp) (c columns) {
	for i, at := range names.FindAllStringIndex(text, -1) {
		if i == 0 {
			c.before = len(strings.Fields(text[:at[0]]))
		}
		c.names = append(c.names, text[at[0]:at[1]])
	}
	return c
}

// row returns the figures of a row by column. cut reports too few of them.
func (c columns) row(l line) (cells map[string]string, cut bool) {
	fields := strings.Fields(l.text)
	n := len(c.names)
	for _, from := range []int{c.before, len(fields) - n, 0} {
		if from < 0 || len(fields) < from+n || size(fields[from]) == nil || !allNumeric(fields[from:from+n]) {
			continue
		}
		cells = map[string]string{}
		for i, name := range c.names {
			cells[name] = fields[from+i]
		}
		return cells, false
	}
	left := fields[min(c.before, len(fields)):]
	return nil, len(left) > 0 && len(left) < n && (len(left) > 1 || l.cut) && size(left[0]) != nil && allNumeric(left)
}

func allNumeric(fields []string) bool {
	for _, f := range fields {
		if !numeric(f) {
			return false
		}
	}
	return true
}
