// A click on a heading sorts by it: numbers from high to low, names from a to z; a second one turns it.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0]
  heads.forEach((head, column) => {
    const button = document.createElement("button")
    button.append(...head.childNodes)
    head.append(button)
    button.onclick = () => {
      const numeric = head.classList.contains("n")
      const first = numeric ? "descending" : "ascending", second = numeric ? "ascending" : "descending"
      const turn = head.getAttribute("aria-sort") === first ? second : first
      heads.forEach(each => each.removeAttribute("aria-sort"))
      head.setAttribute("aria-sort", turn)
      const key = row => {
        const cell = row.cells[column], text = cell.textContent
        return numeric ? parseFloat(cell.dataset.value ?? text.replaceAll(",", "")) : text
      }
      const sign = turn === "ascending" ? 1 : -1
      const missing = value => numeric && Number.isNaN(value)
      body.append(...[...body.rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)]
        if (missing(x) || missing(y)) return missing(x) - missing(y)
        return sign * (numeric ? x - y : x.localeCompare(y))
      }))
    }
  })
}
