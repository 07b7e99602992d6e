// How the search ranks pages: first by the words of the query in a page's title, then by those in its headings.
// Sphinx writes this into language_data.js.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, title, , , score]) => {
    const stemmer = new Stemmer();
    const stems = (text) => new Set(splitQuery(text.toLowerCase()).map((word) => stemmer.stemWord(word)));
    const asked = [...stems(new URLSearchParams(location.search).get("q") || "")].filter((word) => !stopwords.includes(word));
    const among = (found) => asked.filter((word) => found.has(word)).length;
    const { docnames, alltitles } = Search._index;
    const number = docnames.indexOf(page);
    const headings = Object.keys(alltitles).filter((heading) => alltitles[heading].some(([file]) => file === number));
    return score + 40 * among(stems(title)) + 10 * among(stems(headings.join(" ")));
  },
};
