package source

import "strings"

// Piece is one part of what a signature is over.
type Piece struct {
	Kind PieceKind
	// Text of a literal, or the lower-case name of a header.
	Text string
}

// PieceKind is a kind of Piece.
type PieceKind uint8

// Kinds of pieces.
const (
	PieceText PieceKind = iota
	PieceBody
	PieceTime
	PieceHeader
)

// Template splits what a signature is over into its pieces. A brace that opens no known placeholder makes ok false.
func Template(signed string) (pieces []Piece, ok bool) {
	for signed != "" {
		text, rest, found := strings.Cut(signed, "{")
		if text != "" {
			pieces = append(pieces, Piece{Kind: PieceText, Text: text})
		}
		if !found {
			return pieces, !strings.Contains(text, "}")
		}
		inner, after, closed := strings.Cut(rest, "}")
		piece, known := placeholder(inner)
		if !closed || !known || strings.Contains(text, "}") {
			return nil, false
		}
		pieces, signed = append(pieces, piece), after
	}
	return pieces, true
}

func placeholder(inner string) (Piece, bool) {
	switch name, header := strings.CutPrefix(inner, "header:"); {
	case header:
		return Piece{Kind: PieceHeader, Text: strings.ToLower(name)}, ValidHeaderName(name)
	case inner == "body":
		return Piece{Kind: PieceBody}, true
	default:
		return Piece{Kind: PieceTime}, inner == "ts"
	}
}

type placeholderSet struct {
	body, ts bool
	headers  map[string]bool
}

func placeholders(signed string) placeholderSet {
	set := placeholderSet{headers: map[string]bool{}}
	pieces, _ := Template(signed)
	for _, p := range pieces {
		switch p.Kind {
		case PieceBody:
			set.body = true
		case PieceTime:
			set.ts = true
		case PieceHeader:
			set.headers[p.Text] = true
		}
	}
	return set
}
