// Sorting of tables by a click on a heading; without script the tables are complete in the order of the suite.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((h) => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (body) => {
        const cell = body.rows[0].cells[column];
        return cell.dataset.v ?? cell.textContent.trim();
      };
      const bodies = [...table.tBodies];
      bodies.sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === "" || y === "") return (x === "") - (y === ""); // what is missing stays last
        const order = isNaN(x) || isNaN(y) ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
        return down ? -order : order;
      });
      table.append(...bodies);
    });
  });
}
// Lists of trials are text until they are opened.
const build = (details) => {
  for (const text of details.querySelectorAll(":scope > noscript")) {
    const range = document.createRange();
    range.selectNode(text);
    text.replaceWith(range.createContextualFragment(text.textContent));
  }
};
addEventListener("toggle", (event) => event.target.open && build(event.target), true);
// A link to a trial opens the list that it is in.
const openTarget = () => {
  const id = location.hash && decodeURIComponent(location.hash.slice(1));
  if (!id) return;
  if (/^t\d+$/.test(id) && !document.getElementById(id)) {
    const lists = [...document.querySelectorAll("details > noscript")];
    const list = lists.find((text) => text.textContent.includes(`<tbody id="${id}"`));
    if (list) build(list.parentElement);
  }
  const target = document.getElementById(id);
  if (!target) return;
  for (let e = target; e; e = e.parentElement) if (e.localName === "details") e.open = true;
  target.scrollIntoView({ behavior: "instant", block: "center" });
};
addEventListener("hashchange", openTarget);
openTarget();
// Chromium opens no data address of more than 2 MB; the same bytes as an object have no limit.
addEventListener("click", (event) => {
  const link = event.target.closest?.("a[download]");
  if (!link) return;
  event.preventDefault();
  const saved = document.createElement("a");
  saved.download = link.download;
  const bytes = decodeURIComponent(link.getAttribute("href").replace(/^[^,]*,/, ""));
  saved.href = URL.createObjectURL(new Blob([bytes], { type: "text/csv" }));
  saved.click();
  setTimeout(() => URL.revokeObjectURL(saved.href), 60000);
});
