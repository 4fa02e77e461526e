"""What makes the HTML of lines between two sentences answer a pointer: a few rules of style, and a script without parts.

The script has no < and no ampersand, so that the page is also well-formed XML.
"""

STYLE = (
    ".regard-lines{display:block;max-width:100%;height:auto;margin-top:.5em}"
    ".regard-lines text{font:15px system-ui,'Segoe UI',Roboto,'Noto Sans',sans-serif;fill:#222}"
    ".regard-lines .n,.regard-lines .c{font-size:12px;fill:#5b646c;font-variant-numeric:tabular-nums}"
    ".regard-lines path{fill:none}"
    ".regard-lines .w,.regard-heads span{cursor:default;outline-offset:2px}"
    ".regard-lines .w:focus text{text-decoration:underline}.regard-lines .w:focus{outline:none}"
    ".regard-lines.some path:not(.on){opacity:.04}"
    ".regard-lines.some .w:not(.on) text{fill:#aab2b9}"
)
# It looks for pictures that have no script yet, because a notebook does not say which script is running.
SCRIPT = """
document.querySelectorAll('.regard-lines:not([data-ready])').forEach(function (svg) {
  svg.setAttribute('data-ready', '');
  var paths = Array.from(svg.querySelectorAll('path')), words = Array.from(svg.querySelectorAll('.w'));
  var several = svg.hasAttribute('data-heads');
  function clear() {
    svg.classList.remove('some');
    paths.concat(words).forEach(function (each) { each.classList.remove('on'); });
    svg.querySelectorAll('.n').forEach(function (each) { each.textContent = ''; });
  }
  function keep(name, value, numbers) {
    clear();
    svg.classList.add('some');
    paths.forEach(function (path) {
      if (path.dataset[name] !== value) { return; }
      path.classList.add('on');
      words.forEach(function (word) {
        if (word.dataset.row !== path.dataset.row) { if (word.dataset.column !== path.dataset.column) { return; } }
        word.classList.add('on');
        if (!numbers) { return; }
        if (name in word.dataset) { return; }
        word.querySelector('.n').textContent = path.dataset.weight + (several ? ' h' + path.dataset.head : '');
      });
    });
  }
  function listen(element, name, numbers) {
    var value = element.dataset[name];
    ['mouseenter', 'focus'].forEach(function (kind) {
      element.addEventListener(kind, function () {
        keep(name, value, numbers);
        if (numbers) { element.classList.add('on'); }
      });
    });
    ['mouseleave', 'blur'].forEach(function (kind) { element.addEventListener(kind, clear); });
  }
  words.forEach(function (word) { listen(word, 'row' in word.dataset ? 'row' : 'column', true); });
  svg.parentNode.querySelectorAll('.regard-heads span').forEach(function (head) { listen(head, 'head', false); });
});
"""
