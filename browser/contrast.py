"""Whether words can be read: a script that a page runs about itself."""

# Relative luminance and contrast by WCAG 2.2. What is behind a text may be see-through, so the colors are blended.
LOW_CONTRAST = """(least) => {
    const read = (text) => { const parts = text.match(/[\\d.]+/g).map(Number);
        const unit = text.startsWith('color(srgb') ? 255 : 1;
        return [...parts.slice(0, 3).map((value) => value * unit), parts[3] ?? 1]; };
    const over = (front, back) => front.slice(0, 3)
        .map((value, i) => value * front[3] + back[i] * (1 - front[3])).concat(1);
    const light = (color) => { const [r, g, b] = color.slice(0, 3).map((value) => value / 255)
        .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const behind = (node) => { const layers = [];
        for (let at = node; at; at = at.parentElement) layers.push(read(getComputedStyle(at).backgroundColor));
        return layers.reverse().reduce((back, front) => over(front, back), [255, 255, 255, 1]); };
    const found = {};
    for (const node of document.querySelectorAll('body *')) {
        const text = [...node.childNodes].filter((each) => each.nodeType === 3 && each.textContent.trim());
        if (!text.length || !node.getClientRects().length || node.closest('noscript, script, style')) continue;
        const style = getComputedStyle(node), back = behind(node);
        const color = node.closest('svg') ? style.fill : style.color;
        if (!/^rgb/.test(color)) continue;
        const [a, b] = [light(over(read(color), back)), light(back)].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < least) found[node.textContent.trim().slice(0, 40)] = ratio.toFixed(2);
    }
    return found; }"""
WCAG_AA = 4.5
