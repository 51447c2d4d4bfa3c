package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// pathOf parses a JSONPath. As in kubectl, the braces and the first dot of a JSONPath may be left out: .name and name
// mean {.name}.
func pathOf(flag, text string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(text, "{") {
		text = "." + strings.TrimPrefix(text, ".")
		text = "{" + strings.Replace(text, ".[", "[", 1) + "}"
	}
	p := jsonpath.New(flag).AllowMissingKeys(true)
	if err := p.Parse(text); err != nil {
		return nil, Fail(ExitUsage, "%s: %q is not a JSONPath: %v", flag, text, err)
	}
	return p, nil
}

// fieldsOf converts a value to JSON and returns the decoded fields.
func fieldsOf(value any) (fields any, err error) {
	data, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding the report: %w", err)
	}
	return fields, nil
}

// wrapListInItems puts a list into the field items, as kubectl does, so that users can write {.items[*].name} as well
// as {[*].name}.
func wrapListInItems(fields any, template string) any {
	if list, is := fields.([]any); is && strings.Contains(template, ".items") {
		return map[string]any{"items": list}
	}
	return fields
}

// byPath returns the fields of a report for -o jsonpath=TEMPLATE.
func byPath(r Report, template string) (string, error) {
	p, err := pathOf("--output", template)
	if err != nil {
		return "", err
	}
	fields, err := fieldsOf(r)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := p.Execute(&b, wrapListInItems(fields, template)); err != nil {
		return "", Fail(ExitUsage, "--output: %v: -o json shows the fields", err)
	}
	return b.String(), nil
}

// byColumns returns a report for -o custom-columns=TITLE:PATH,… A list has a row for each element.
func (a *App) byColumns(r Report, template string) (string, error) {
	fields, err := fieldsOf(r)
	if err != nil {
		return "", err
	}
	list, is := fields.([]any)
	if !is {
		list = []any{fields}
	}
	rows := make([][]string, len(list)+1)
	for column := range strings.SplitSeq(template, ",") {
		title, path, found := strings.Cut(column, ":")
		if !found || title == "" || path == "" {
			return "", Fail(ExitUsage, "--output: %q is not a column TITLE:PATH, such as NAME:.name", column)
		}
		p, err := pathOf("--output", path)
		if err != nil {
			return "", err
		}
		rows[0] = append(rows[0], title)
		for i, element := range list {
			rows[i+1] = append(rows[i+1], cellOf(p, element))
		}
	}
	page := a.Page()
	page.Rows(rows)
	return page.String(), nil
}

// noValue stands for a missing value, as in kubectl.
const noValue = "<none>"

// cellOf returns the value of a path in a cell of a table.
func cellOf(p *jsonpath.JSONPath, element any) string {
	var b bytes.Buffer
	if err := p.Execute(&b, element); err != nil || b.Len() == 0 {
		return noValue
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// outputTemplate returns the template in the value of --output.
func (a *App) outputTemplate(prefix string) (template string, found bool) {
	return strings.CutPrefix(a.Config.Output, prefix)
}

// IsForPeople reports whether the output format is a text for people.
func (a *App) IsForPeople() bool {
	return a.Config.Output == config.FormatTable || a.Config.Output == config.FormatWide
}
