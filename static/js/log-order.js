// Where a line stands among those on the page, and where a mark does.
(() => {
  "use strict";

  const unstall = (window.unstall ??= {});
  const BACK = 1000; // lines looked back for the place of one from another source

  // Nanoseconds as text.
  const isLater = (one, other) => (one.length === other.length ? one > other : one.length > other.length);

  // A source's own order is kept; lines of several sources stand by their time.
  const place = (rows, row, item) => {
    let [next, last] = [null, rows.lastElementChild];
    for (let step = 0; item.at && step < BACK; step += 1) {
      if (!last?.item || last.item.source === item.source || !isLater(last.item.at, item.at)) break;
      [next, last] = [last, last.previousElementSibling];
    }
    rows.insertBefore(row, next);
  };

  // Each mark stands before the first line that is not older.
  const mark = (rows, marks) => {
    for (const one of marks) {
      let [next, row] = [null, rows.lastElementChild];
      for (; row && (!row.item || !isLater(one.at, row.item.at)); row = row.previousElementSibling) if (row.item) next = row;
      if (one.row.nextElementSibling !== next || !one.row.isConnected) rows.insertBefore(one.row, next);
    }
  };

  Object.assign(unstall, { isLater, place, mark });
})();
