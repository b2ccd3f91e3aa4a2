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
// A link to a trial opens the list that it is in.
const openTarget = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let e = target; e; e = e.parentElement) if (e.localName === "details") e.open = true;
  target.scrollIntoView({ behavior: "instant", block: "center" });
};
addEventListener("hashchange", openTarget);
openTarget();
