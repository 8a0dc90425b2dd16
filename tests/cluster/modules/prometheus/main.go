// Command promquery answers PromQL from scrapes that were recorded. It reads one JSON object from standard input and
// writes one JSON list: an answer for each query, or its error.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

// Scrape is the text of one target at one moment. Labels are those of the target; the text's own labels win.
type Scrape struct {
	At     int64             `json:"at"` // Unix seconds
	Labels map[string]string `json:"labels"`
	Text   string            `json:"text"`
}

// Query is evaluated at each step from start to end, both included. Times are Unix seconds.
type Query struct {
	Expr  string `json:"expr"`
	Start int64  `json:"start"`
	End   int64  `json:"end"`
	Step  int64  `json:"step"`
}

// Series has a value, or nil, for each step.
type Series struct {
	Labels map[string]string `json:"labels"`
	Values []*float64        `json:"values"`
}

// Answer has an error, or the series.
type Answer struct {
	Error  string   `json:"error,omitempty"`
	Series []Series `json:"series"`
}

func main() {
	log.SetFlags(0)
	var asked struct {
		Scrapes []Scrape `json:"scrapes"`
		Queries []Query  `json:"queries"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		log.Fatal(err)
	}
	answers, err := answered(asked.Scrapes, asked.Queries)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		log.Fatal(err)
	}
}

func answered(scrapes []Scrape, queries []Query) ([]Answer, error) {
	folder, err := os.MkdirTemp("", "promquery-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	db, err := tsdb.Open(folder, nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	for _, scrape := range scrapes {
		if err := store(db, scrape); err != nil {
			return nil, err
		}
	}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000,
		Timeout:    time.Minute,
		Parser:     parser.NewParser(parser.Options{}),
	})
	answers := make([]Answer, 0, len(queries))
	for _, query := range queries {
		found, err := evaluate(engine, db, query)
		if err != nil {
			found = Answer{Error: err.Error()}
		}
		answers = append(answers, found)
	}
	return answers, nil
}

func store(db *tsdb.DB, scrape Scrape) error {
	app := db.Appender(context.Background())
	texts := textparse.NewPromParser([]byte(scrape.Text), labels.NewSymbolTable(), false)
	for {
		entry, err := texts.Next()
		if errors.Is(err, io.EOF) {
			return app.Commit()
		}
		if err != nil {
			return fmt.Errorf("a scrape cannot be read: %w", err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var own labels.Labels
		texts.Labels(&own)
		merged := labels.NewBuilder(labels.FromMap(scrape.Labels))
		own.Range(func(one labels.Label) { merged.Set(one.Name, one.Value) })
		_, _, value := texts.Series()
		if _, err := app.Append(0, merged.Labels(), scrape.At*1000, value); err != nil {
			return err
		}
	}
}

func evaluate(engine *promql.Engine, db *tsdb.DB, query Query) (Answer, error) {
	start, end, step := time.Unix(query.Start, 0), time.Unix(query.End, 0), time.Duration(query.Step)*time.Second
	prepared, err := engine.NewRangeQuery(context.Background(), db, nil, query.Expr, start, end, step)
	if err != nil {
		return Answer{}, err
	}
	defer prepared.Close()
	matrix, err := prepared.Exec(context.Background()).Matrix()
	if err != nil {
		return Answer{}, err
	}
	steps := int((query.End-query.Start)/query.Step) + 1
	found := Answer{Series: []Series{}}
	for _, one := range matrix {
		values := make([]*float64, steps)
		for _, point := range one.Floats {
			if !math.IsNaN(point.F) && !math.IsInf(point.F, 0) {
				values[(point.T/1000-query.Start)/query.Step] = &point.F
			}
		}
		found.Series = append(found.Series, Series{Labels: one.Metric.Map(), Values: values})
	}
	return found, nil
}
