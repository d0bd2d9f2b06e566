package scrape

import (
	"bytes"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// Exposition reads all sources and returns the series in a format, compressed by gzip if asked for. Calls that
// overlap share one result, which nobody may change.
func (s *Scraper) Exposition(format expfmt.Format, compressed bool) ([]byte, error) {
	body, err, _ := s.flights.Do(fmt.Sprint(format, compressed), func() (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.readLocked(nil)
		if err := s.encodeLocked(format); err != nil {
			return nil, err
		}
		if compressed {
			return s.compressLocked()
		}
		return bytes.Clone(s.text), nil
	})
	if err != nil {
		return nil, err
	}
	return body.([]byte), nil
}

// encodeLocked writes the table into s.text: the text format by the table itself, all others by client_golang.
func (s *Scraper) encodeLocked(format expfmt.Format) error {
	s.text = s.text[:0]
	if format.FormatType() == expfmt.TypeTextPlain {
		s.text = s.table.AppendText(s.text)
		return nil
	}
	reg, series := prometheus.NewPedanticRegistry(), prometheus.Collector(s.table)
	if format.FormatType() != expfmt.TypeOpenMetrics { // protobuf
		series = s.table.Native()
	}
	if err := reg.Register(series); err != nil {
		return err
	}
	families, err := reg.Gather()
	if err != nil {
		return err
	}
	b := bytes.NewBuffer(s.text)
	enc := expfmt.NewEncoder(b, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return err
		}
	}
	if closer, ok := enc.(expfmt.Closer); ok {
		err = closer.Close()
	}
	s.text = b.Bytes()
	return err
}

// compressLocked compresses s.text, statelessly: 0.3 MB of memory instead of 0.8, for 2 % more bytes.
func (s *Scraper) compressLocked() ([]byte, error) {
	packed := bytes.NewBuffer(make([]byte, 0, len(s.text)/6))
	s.zip.Reset(packed)
	if _, err := s.zip.Write(s.text); err != nil {
		return nil, err
	}
	err := s.zip.Close()
	return packed.Bytes(), err
}
