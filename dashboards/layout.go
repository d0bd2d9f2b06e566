package dashboards

// layOut assigns IDs and positions, left to right and line by line. A repeated
// panel gets its own line, because Grafana fills it.
func layOut(sections []section) []object {
	var all []object
	id, y := 0, 0
	next := func() int { id++; return id }
	for _, s := range sections {
		row := object{
			"id": next(), "type": "row", "title": s.title, "collapsed": s.folded, "panels": []object{},
			"gridPos": object{"x": 0, "y": y, "w": width, "h": 1},
		}
		y++
		var placed []object
		x, tallest, top := 0, 0, y
		for _, p := range s.panels {
			if x+p.w > width || p.repeat != "" {
				x, y, tallest = 0, y+tallest, 0
			}
			placed = append(placed, p.render(next(), x, y))
			x, tallest = x+p.w, max(tallest, p.h)
			if p.repeat != "" {
				x = width
			}
		}
		y += tallest
		if s.folded {
			y = top // a collapsed section takes no space
			row["panels"] = placed
			all = append(all, row)
			continue
		}
		all = append(append(all, row), placed...)
	}
	return all
}

// width of Grafana's grid.
const width = 24
