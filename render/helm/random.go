package helm

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/render/input"
)

// draw selects one of two fixed results for each random template function. A random template function returns a random
// value, a key, a certificate or the time. A chart that calls random template functions is rendered twice: once with
// the first fixed results, and once with the second fixed results. If an object is equal in the first and the second
// rendering, it does not depend on a random template function. If the object differs, Render refuses it, so that a
// fixed result in place of a random one is never applied.
type draw int

const (
	firstDraw draw = iota
	secondDraw
)

// drawnTimes are the two fixed times that the template function "now" returns in place of the current time: one in the
// first rendering of a chart, and one in the second. The two times have no year, month, day, hour, minute or second in
// common. Therefore an object that contains any part of the time differs between the two renderings.
var drawnTimes = [...]time.Time{
	firstDraw:  time.Date(2001, time.February, 3, 4, 5, 6, 7, time.UTC),
	secondDraw: time.Date(2032, time.November, 27, 18, 39, 50, 8, time.UTC),
}

// drawnCertificate is the result of a function that makes a certificate; it has the fields that templates read.
type drawnCertificate struct{ Cert, Key string }

// fixedRandomFunctions returns replacements with fixed results for the template functions whose results are random. The
// parameter original contains the functions of the library Sprig that are replaced.
func (f *functions) fixedRandomFunctions(original template.FuncMap) template.FuncMap {
	characters := func(name, first, second string) func(int) (string, error) {
		return func(count int) (string, error) {
			f.recordRandomCall(name)
			if count < 0 || count > maxRepeat {
				return "",
					f.recordRefusal(fmt.Sprintf("%s is refused, because its result would have more than %d bytes",
						name,
						maxRepeat))
			}
			return strings.Repeat([...]string{first, second}[f.draw], count), nil
		}
	}
	text := func(name string) func(...any) string {
		return func(...any) string {
			f.recordRandomCall(name)
			return name + "-" + strconv.Itoa(int(f.draw))
		}
	}
	certificate := func(name string) func(...any) drawnCertificate {
		return func(...any) drawnCertificate {
			f.recordRandomCall(name)
			is := name + "-" + strconv.Itoa(int(f.draw))
			return drawnCertificate{Cert: is + "-cert", Key: is + "-key"}
		}
	}
	now := func() time.Time {
		f.recordRandomCall("now")
		return drawnTimes[f.draw]
	}
	table := template.FuncMap{
		"randAlphaNum": characters("randAlphaNum", "a", "b"),
		"randAlpha":    characters("randAlpha", "a", "b"),
		"randAscii":    characters("randAscii", "a", "b"),
		"randNumeric":  characters("randNumeric", "1", "2"),
		"randBytes": func(count int) (string, error) {
			bytes, err := characters("randBytes", "a", "b")(count)
			return base64.StdEncoding.EncodeToString([]byte(bytes)), err
		},
		"randInt": func(low, high int) (int, error) {
			f.recordRandomCall("randInt")
			if high <= low {
				return 0, errors.New("randInt needs a maximum that is larger than the minimum")
			}
			return [...]int{low, high - 1}[f.draw], nil
		},
		"shuffle": func(text string) string {
			f.recordRandomCall("shuffle")
			if runes := []rune(text); f.draw == secondDraw && len(runes) > 0 {
				return string(append(runes[1:], runes[0]))
			}
			return text
		},
		"uuidv4": func() string {
			f.recordRandomCall("uuidv4")
			return [...]string{"aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa", "bbbbbbbb-bbbb-4bbb-9bbb-bbbbbbbbbbbb"}[f.draw]
		},
		"now": now,
		"ago": func(any) string {
			f.recordRandomCall("ago")
			return [...]string{"1h0m0s", "26h3m4s"}[f.draw]
		},
	}
	for _, name := range []string{"genPrivateKey", "bcrypt", "htpasswd", "encryptAES"} {
		table[name] = text(name)
	}
	for _, name := range []string{"genCA", "genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey",
		"genSignedCert", "genSignedCertWithKey"} {
		table[name] = certificate(name)
	}
	// The template functions for dates in Sprig use the current time if their argument is not a date. In this package,
	// the template functions for dates use one of the two fixed times in drawnTimes instead of the current time, so
	// that their result can be compared between two renderings.
	dated := func(date any) any {
		switch date.(type) {
		case time.Time, *time.Time, int64, int, int32:
			return date
		}
		return now()
	}
	inZone := original["dateInZone"].(func(string, any, string) string)
	table["date"] = func(form string, date any) string { return inZone(form, dated(date), "Local") }
	table["htmlDate"] = func(date any) string { return inZone(time.DateOnly, dated(date), "Local") }
	table["htmlDateInZone"] = func(date any, zone string) string { return inZone(time.DateOnly, dated(date), zone) }
	for _, name := range []string{"dateInZone", "date_in_zone"} {
		table[name] = func(form string, date any, zone string) string { return inZone(form, dated(date), zone) }
	}
	return table
}

// recordRandomCall records that a template has called a function whose result differs each time.
func (f *functions) recordRandomCall(name string) {
	if !slices.Contains(f.drawn, name) {
		f.drawn = append(f.drawn, name)
	}
}

// compare returns an error if an object in the first rendering of a chart differs from the same object in the second
// rendering.
func (r *rendering) compare(second *rendering) error {
	refuse := func(o renderedObject, what string) error {
		return &input.Error{Operation: operationChart, Code: input.RefusedFeature, File: o.file,
			Object: input.Describe(o.Object), Problem: fmt.Sprintf(
				"%s differs in each rendering, because the chart calls %s, and one rendering is for all clusters: pass "+
					"the result as a value", what, strings.Join(r.drawn, ", "))}
	}
	for i, o := range r.objects {
		if i >= len(second.objects) || second.objects[i].file != o.file || second.objects[i].GetKind() != o.GetKind() {
			return refuse(o, "the list of objects")
		}
		if at, differ := differenceOf("", o.Object, second.objects[i].Object); differ {
			return refuse(o, at)
		}
	}
	if len(second.objects) > len(r.objects) {
		return refuse(second.objects[len(r.objects)], "the list of objects")
	}
	return nil
}

// differenceOf returns the path of the first difference between two values.
func differenceOf(at string, a, b any) (string, bool) {
	if reflect.DeepEqual(a, b) {
		return "", false
	}
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(a)) {
			if at, differ := differenceOf(at+"."+key, a[key], b[key]); differ {
				return at, true
			}
		}
		for _, key := range slices.Sorted(maps.Keys(b)) {
			if _, both := a[key]; ok && !both {
				return strings.TrimPrefix(at+"."+key, "."), true
			}
		}
	case []any:
		if b, ok := b.([]any); ok && len(a) == len(b) {
			for i := range a {
				if at, differ := differenceOf(fmt.Sprintf("%s[%d]", at, i), a[i], b[i]); differ {
					return at, true
				}
			}
		}
	}
	return cmp.Or(strings.TrimPrefix(at, "."), "the object"), true
}
