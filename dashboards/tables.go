package dashboards

// table shows current values, one row per combination of labels that its queries share.
func table(title, docs, about string) *panel {
	return &panel{
		kind: "table", title: title, about: about, docs: docs, w: 24, h: 8, format: "table", instant: true,
		defaults: object{}, custom: object{"align": "auto", "cellOptions": object{"type": "auto"}, "filterable": true,
			"inspect": false, "minWidth": 60},
		options: object{
			"showHeader": true, "cellHeight": "sm", "sortBy": []object{},
		},
		renamed: object{}, hide: object{"Time": true}, order: object{},
	}
}

// label adds a column with the values of a label.
func (p *panel) label(name, title string, props ...object) *panel {
	p.renamed[name], p.order[name] = title, len(p.order)
	return p.cells(title, props...)
}

// column adds a query as a column. All labels of the query must have columns.
func (p *panel) column(title, expr string, props ...object) *panel {
	name := "Value #" + refID(len(p.targets))
	p.renamed[name], p.order[name] = title, len(p.order)
	return p.query(expr, "").cells(title, props...)
}

// labelled adds a query of which only labels are shown.
func (p *panel) labelled(expr string) *panel {
	p.hide["Value"], p.hide["Value #"+refID(len(p.targets))] = true, true
	return p.query(expr, "")
}

// sortedBy sorts the rows by a column.
func (p *panel) sortedBy(title string, descending bool) *panel {
	p.options["sortBy"] = []object{{"displayName": title, "desc": descending}}
	return p
}

func (p *panel) cells(title string, props ...object) *panel {
	if len(props) > 0 {
		p.overrides = append(p.overrides, object{"matcher": object{"id": "byName", "options": title},
			"properties": props})
	}
	return p
}

// Properties of cells.

func inUnit(id string) object     { return prop("unit", id) }
func wide(pixels int) object      { return prop("custom.width", pixels) }
func says(states ...state) object { return prop("mappings", append(mappings(states), blank()...)) }
func painted() object {
	return prop("custom.cellOptions", object{"type": "color-background", "mode": "basic"})
}
func by(base string, steps ...step) object { return prop("thresholds", thresholds(base, steps)) }
func leadingTo(links ...object) object     { return prop("links", links) }

// matrix shows one query as a coloured table of nodes by peers.
func matrix(title, docs, about, expr string) *panel {
	const corner = `instance\peer` // the transformation's name for the first column
	p := table(title, docs, about).size(24, 10).query(expr, "")
	p.custom["cellOptions"] = object{"type": "color-background", "mode": "basic"}
	p.custom["filterable"], p.custom["align"], p.custom["wrapHeaderText"] = false, "center", true
	p.transforms = []object{
		{"id": "sortBy", "options": object{"fields": object{}, "sort": []object{{"field": "peer"}}}},
		{"id": "groupingToMatrix", "options": object{"columnField": "peer", "rowField": "instance",
			"valueField": "Value", "emptyValue": "null"}},
	}
	p.cells(corner, prop("displayName", "from ↓ to →"), prop("custom.cellOptions", object{"type": "auto"}),
		prop("custom.align", "left"), wide(130), leadingTo(toNode("${__value.text}")))
	p.leads(toProbe("${__data.fields[0]}", "${__field.name}"))
	return p.sortedBy("from ↓ to →", false)
}

// allTransforms joins the results of the queries of a table and names the columns.
func (p *panel) allTransforms() []object {
	if len(p.order) == 0 {
		return p.transforms
	}
	var list []object
	if only := p.renamed["Value #A"]; len(p.targets) == 1 && only != nil {
		// with a single query, the column has no letter
		p.renamed["Value"], p.order["Value"] = only, p.order["Value #A"]
	}
	if len(p.targets) > 1 {
		list = append(list, object{"id": "merge", "options": object{}})
	}
	return append(list, object{"id": "organize", "options": object{"excludeByName": p.hide, "indexByName": p.order,
		"renameByName": p.renamed}})
}
