package read

import (
	"regexp"
	"strings"
)

// Errors of perftest. The first list occurs only in perftest; the second counts only while one of its runs is open.
var (
	perftestFailure = regexp.MustCompile(`Couldn't allocate MR|[Ff]ailed to create (?:mr|MR)\b|` +
		`Couldn't create IB resources|Unable to init the socket connection|Unable to find the Infiniband/RoCE device|` +
		`Failed to complete run_iter_|Couldn't get context for the device|ethernet_\w+: Couldn't read|` +
		`VALIDATION: (?:FAILED|ERROR)|IB device \S+ not found|Error: (?:BW result|Msg rate) +is below|` +
		`Failed to negotiate parameters|Unable to Connect the HCA|Couldn't connect to \S+:\d+|Failed status \d+|` +
		`Failed to exchange data between server and clients|Couldn't post (?:send|recv)|Unexpected CM event|` +
		`Failed to modify QP|Couldn't initialize ROCm device|Requested ROCm device \d+ but found only|` +
		`ROCm DMA-BUF cannot be used without ROCm|hipMalloc error=\d|hipDeviceGetCount\(\) returned \d|` +
		`failed to export dmabuf handle for addr|could not verify dmabuf support from kernel|Unsupported memory type$`)
	perftestError = regexp.MustCompile(`^(?:Couldn't |Unable to |Failed |Failed:|Invalid |Problems? |` +
		`Test exited with Error|Error occurred|Port number \d+ state is |Bad wc status|[Pp]oll .*failed|` +
		`rdma_\w+ failed|Function ibv_\w+ failed|DMA-BUF is not supported|No IB devices found|Did not detect devices)`)
	perftestStatus = regexp.MustCompile(`Failed status (\d+)`)
)

// failure reads the first error of a run. Follow-up errors are not reported.
func (p *perftest) failure(number int, text string) bool {
	switch {
	case strings.Contains(text, "Completion with error at "):
		p.complete = text
		return true
	case !has(text, "ail", "FAILED", "ERROR", "ould", "nable to", "not found", "below", "nexpected", "nvalid ",
		"roblem", "rror", "state is", "wc status", "not supported", "devices", "ROCm", "hipDevice", "nsupported"),
		!perftestFailure.MatchString(text) && !(p.opened > 0 && perftestError.MatchString(text)):
		return false
	}
	if m := perftestStatus.FindStringSubmatch(text); m != nil {
		name := map[string]string{"4": "local protection", "5": "flushed", "9": "remote invalid request",
			"10": "remote access", "11": "remote operation", "12": "retry exceeded", "13": "receiver not ready"}[m[1]]
		if name != "" && !strings.Contains(text, "("+name) {
			text = strings.Replace(text, m[0], m[0]+" ("+name+")", 1)
		}
		if p.complete != "" {
			text = p.complete + ", " + text
		}
	}
	p.complete = ""
	if strings.Contains(text, "VALIDATION: ") {
		for _, i := range append(p.ended, p.table...) {
			if i >= 0 {
				p.rows[i].fail("perftest: %s", text)
			}
		}
		p.ended, p.table = nil, nil
	}
	p.report(number, text)
	return true
}

func (p *perftest) report(number int, text string) {
	if !p.failed {
		p.fail(number, "perftest failed: %s", text)
	}
	p.failed, p.next = true, ""
	p.open = max(p.open-1, 0)
	if p.open == 0 {
		p.opened, p.header, p.others = 0, 0, nil
	}
}

// flushFailure reports a completion without a status.
func (p *perftest) flushFailure() {
	if p.complete != "" {
		p.report(max(p.opened, p.header), p.complete)
		p.complete = ""
	}
}
