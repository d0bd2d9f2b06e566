package grid

import "github.com/railscope/railscope/internal/terminal"

// The bands of the part of a step that synchronisation takes.
const (
	goodShare = 0.2
	fairShare = 0.4
)

// Band is what a part of a step means, and its colour.
func Band(share float64) (text, colour string) {
	switch {
	case share < goodShare:
		return "below 20 %: the network is not the limit", terminal.Green
	case share <= fairShare:
		return "20 to 40 %: overlap it with computing", terminal.Yellow
	}
	return "above 40 %: the network is the limit", terminal.Red
}
